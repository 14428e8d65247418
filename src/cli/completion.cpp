#include "cli/completion.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <set>

#include "cli/text/terminal.hpp"

namespace berth::cli {

using namespace world;
namespace {

using Offered = std::map<const CLI::Option*, Offer>;

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

const CLI::Option* option_of(const CLI::App& verb, const std::string& name) {
  return name.size() > 1 ? verb.get_option_no_throw(name) : nullptr;
}

// The words before the one that is being typed.
struct Place {
  const CLI::App* verb = nullptr;
  const CLI::Option* option = nullptr;  // an option whose value is expected
  std::size_t arguments = 0;            // positional ones so far
  bool only_arguments = false;          // after "--"
  std::set<const CLI::Option*> given;
  NameSources sources;
};

void pass_value(Place& place, const CLI::Option& option, const std::string& value) {
  if (option.check_lname("server")) place.sources.server = value;
  if (option.check_lname("ca")) place.sources.ca_file = value;
  if (option.check_lname("simulated")) place.sources.simulated_file = value;
}

// Returns false if nothing can follow these words.
bool pass_word(Place& place, const std::string& word) {
  if (place.option != nullptr) {
    pass_value(place, *place.option, word);
    place.option = nullptr;
  } else if (!place.only_arguments && word == "--") {
    place.only_arguments = true;
  } else if (!place.only_arguments && word.size() > 1 && word[0] == '-') {
    const std::size_t equals = word.find('=');
    const CLI::Option* const option = option_of(*place.verb, word.substr(0, equals));
    if (option == nullptr) return true;
    place.given.insert(option);
    if (equals != std::string::npos)
      pass_value(place, *option, word.substr(equals + 1));
    else if (takes_value(*option))
      place.option = option;
  } else if (!place.verb->get_subcommands({}).empty()) {
    const auto below = place.verb->get_subcommands([&](const CLI::App* verb) { return verb->get_name() == word; });
    if (below.empty()) return false;
    place.verb = below.front();
  } else {
    ++place.arguments;
    // Everything after the first word of a command belongs to the command.
    place.only_arguments = place.only_arguments || place.verb->get_positionals_at_end();
  }
  return true;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::vector<Candidate> verb_candidates(const CLI::App& verb) {
  std::vector<Candidate> found;
  for (const CLI::App* below : verb.get_subcommands({}))
    found.push_back({below->get_name(), one_line(below->get_description())});
  return found;
}

std::vector<Candidate> option_candidates(const Place& place) {
  std::vector<Candidate> found;
  for (const CLI::Option* option : place.verb->get_options()) {
    const bool may_repeat = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    if (place.given.contains(option) && !may_repeat) continue;
    for (const std::string& name : option->get_snames())
      found.push_back({"-" + name, one_line(option->get_description())});
    for (const std::string& name : option->get_lnames())
      found.push_back({"--" + name, one_line(option->get_description())});
  }
  return found;
}

// Empty if the value is a file or any text. `before`: the part already typed in the same word, such as "--device=".
std::optional<std::vector<Candidate>> value_candidates(const Offered& offered, const CLI::Option& option,
                                                       const NameSources& sources, const std::string& before = "") {
  const auto offer = offered.find(&option);
  if (offer == offered.end()) return std::nullopt;
  std::vector<Candidate> found;
  for (const std::string& word : offer->second.words) found.push_back({before + word, ""});
  for (const Names kind : offer->second.names) {
    for (Candidate& candidate : find_names(kind, sources))
      found.push_back({before + candidate.word, std::move(candidate.about)});
  }
  return found;
}

std::optional<std::vector<Candidate>> argument_candidates(const Offered& offered, const Place& place) {
  const std::vector<const CLI::Option*> all =
      place.verb->get_options([](const CLI::Option* option) { return option->get_positional(); });
  if (all.empty()) return option_candidates(place);
  const CLI::Option& argument = *all[std::min(place.arguments, all.size() - 1)];
  const bool is_taken =
      place.arguments >= all.size() && argument.get_items_expected_max() < CLI::detail::expected_max_vector_size;
  return is_taken ? option_candidates(place) : value_candidates(offered, argument, place.sources);
}

std::optional<std::vector<Candidate>> candidates_at(const Offered& offered, const Place& place,
                                                    const std::string& typed) {
  if (place.option != nullptr) return value_candidates(offered, *place.option, place.sources);
  if (!place.only_arguments && typed.starts_with('-')) {
    const std::size_t equals = typed.find('=');
    if (equals == std::string::npos) return option_candidates(place);
    const CLI::Option* const option = option_of(*place.verb, typed.substr(0, equals));
    return option ? value_candidates(offered, *option, place.sources, typed.substr(0, equals + 1))
                  : std::vector<Candidate>();
  }
  if (!place.verb->get_subcommands({}).empty()) return verb_candidates(*place.verb);
  return argument_candidates(offered, place);
}

}  // namespace

int print_candidates(const CLI::App& app, const Offered& offered, std::span<char* const> words) {
  if (words.empty()) return environment_error;
  const std::string typed = words.back();
  words = words.first(words.size() - 1);
  if (!words.empty() && std::string_view(words[0]) == "help") words = words.subspan(1);
  Place place;
  place.verb = &app;
  for (const char* const word : words)
    if (!pass_word(place, word)) return done;
  const auto found = candidates_at(offered, place, typed);
  if (!found) return environment_error;
  std::string text;
  for (const Candidate& candidate : *found) {
    if (candidate.word.starts_with(typed))
      text += printable(candidate.word) + "\t" + printable(one_line(candidate.about)) + "\n";
  }
  return print(text);
}

}  // namespace berth::cli
