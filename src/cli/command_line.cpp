#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

#include "cli/completion.hpp"
#include "cli/man_pages.hpp"
#include "cli/text/terminal.hpp"
#include "placement/nearest_name.hpp"

namespace berth::cli {

using namespace world;
namespace {

constexpr std::size_t help_columns = 80;
constexpr std::size_t option_column = 30;  // where the text of an option begins
constexpr std::size_t verb_column = 15;
constexpr const char* exit_status_text =
    "Exit status: 0 done; 1 environment error; 2 wrong input or usage; 3 valid, but does not fit.";

std::string wrapped_text(const std::string& text, std::size_t columns) {
  std::string out;
  for (const std::string& line : wrapped(text, columns)) out += (out.empty() ? "" : "\n") + line;
  return out;
}
std::string option_text(const std::string& help) { return wrapped_text(help, help_columns - option_column); }

CLI::Option* add_option(CLI::App& app, const std::string& names, const Target& into, const std::string& help) {
  const auto add = [&](auto& target) -> CLI::Option* {
    using Type = std::decay_t<decltype(target)>;
    if constexpr (std::is_same_v<Type, std::function<Result<void>(const std::string&)>>) {
      return app.add_option_function<std::vector<std::string>>(
          names,
          [target](const std::vector<std::string>& values) {
            for (const std::string& value : values) {
              if (const Result<void> read = target(value); !read) throw CLI::ValidationError(read.error().to_text());
            }
          },
          help);
    } else {
      return app.add_option(names, *target, help);
    }
  };
  return std::visit(add, into);
}

bool takes_several(const Target& into) {
  return std::holds_alternative<std::vector<std::string>*>(into) ||
         std::holds_alternative<std::function<Result<void>(const std::string&)>>(into);
}

// Unchanged where this process has no working folder.
std::string absolute_path(const std::string& file) {
  std::error_code failed;
  const std::filesystem::path path = std::filesystem::absolute(file, failed);
  return failed ? file : path.native();
}

bool has_default(const Target& into) {
  if (const auto* const text = std::get_if<std::string*>(&into)) return !(*text)->empty();
  if (const auto* const count = std::get_if<std::size_t*>(&into)) return **count > 0;
  return std::holds_alternative<unsigned*>(into);
}

// An empty value usually comes from a variable that a script did not set. Arguments of
// a command to start may be empty.
void refuse_empty_values(CLI::App& app) {
  const CLI::Validator filled(
      [](std::string& value) { return value.empty() ? std::string("its value is empty") : std::string(); }, "", "");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() > 0 && option->get_name() != "COMMAND") option->check(filled);
  }
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) refuse_empty_values(*verb);
}

// The message of CLI11's own check differs between its versions. An empty value is left to refuse_empty_values.
void refuse_outside(CLI::Option& option, std::size_t least, std::size_t most) {
  option.check([&option, least, most](const std::string& value) -> std::string {
    std::size_t number = 0;
    const char* const end = value.data() + value.size();
    const auto [rest, error] = std::from_chars(value.data(), end, number);
    if (value.empty() || (error == std::errc() && rest == end && least <= number && number <= most)) return "";
    throw CLI::ConversionError(option.get_name() + " is " + value + "; give a number from " + std::to_string(least) +
                               " to " + std::to_string(most));
  });
}

// The name of an option written as "--mem=", which CLI11 would combine with the next word; empty if there is none.
std::string option_without_value(std::span<char*> words) {
  const auto dashes = std::find(words.begin(), words.end(), std::string_view("--"));
  const bool runs = words.size() > 1 && std::string_view(words[1]) == "run";
  // Without "--" the word could belong to the command to start.
  if (runs && dashes == words.end()) return {};
  for (const std::string_view word : std::span(words.begin(), dashes)) {
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      return std::string(word.substr(0, word.size() - 1));
  }
  return {};
}

// CLI11 reads a word in brackets as a list. A leading character that never occurs in command lines
// prevents that; it is removed after parsing.
constexpr char bracket_guard = '\x01';
std::vector<std::string> guarded(std::span<char*> words) {
  std::vector<std::string> out;
  for (const std::string_view word : words) {
    const bool bracketed = word.starts_with('[') && word.ends_with(']');
    out.push_back((bracketed ? std::string(1, bracket_guard) : std::string()) + std::string(word));
  }
  return out;
}

// Names of verbs in other programs, and verbs that are below another verb here.
std::optional<std::string> meant_by(std::string_view word) {
  constexpr std::pair<std::string_view, std::string_view> known[] = {{"jobs", "ps -a"},
                                                                     {"list", "ps"},
                                                                     {"queue", "ps"},
                                                                     {"show", "ps"},
                                                                     {"top", "devices --watch"},
                                                                     {"kill", "stop"},
                                                                     {"cancel", "stop"},
                                                                     {"submit", "run -d"},
                                                                     {"get", "status"},
                                                                     {"info", "status"},
                                                                     {"describe", "why"},
                                                                     {"deploy", "apply"},
                                                                     {"restart", "rollout restart"},
                                                                     {"undo", "rollout undo"},
                                                                     {"rollback", "rollout undo"},
                                                                     {"pause", "rollout pause"},
                                                                     {"resume", "rollout resume"},
                                                                     {"backup", "store backup"},
                                                                     {"join", "agent --join"},
                                                                     {"version", "--version"}};
  for (const auto& [name, verb] : known) {
    if (word == name) return std::string(verb);
  }
  return std::nullopt;
}

struct VerbPath {
  std::string typed = "berth";         // "berth fleet show"
  const CLI::App* verb = nullptr;      // the verb that these words name
  bool is_group = false;               // the words end where another verb must follow
  std::optional<std::string> unknown;  // the message about a word that is not a verb
};
VerbPath verb_path(const CLI::App& app, std::span<char*> words) {
  VerbPath path;
  path.verb = &app;
  const CLI::App*& above = path.verb;
  std::size_t i = 1;
  for (; i < words.size() && words[i][0] != '-'; ++i) {
    std::vector<std::string> names;
    for (const CLI::App* known : above->get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(known->get_name());
    if (names.empty()) break;
    const std::vector<std::string_view> verbs(names.begin(), names.end());
    if (std::find(verbs.begin(), verbs.end(), words[i]) == verbs.end()) {
      std::optional<std::string> nearest = above == &app ? meant_by(words[i]) : std::nullopt;
      if (!nearest) nearest = placement::nearest_name(words[i], verbs);
      path.unknown = "there is no command '" + printable(words[i]) + "'; " +
                     (nearest ? "did you mean " + path.typed + " " + std::string(*nearest) + "?"
                              : "see " + path.typed + " --help");
      return path;
    }
    path.typed += std::string(" ") + words[i];
    above = above->get_subcommand(words[i]);
  }
  path.is_group = i >= words.size() && !above->get_subcommands([](const CLI::App*) { return true; }).empty();
  return path;
}

// The message for words that the verb does not accept.
std::string unexpected_text(const VerbPath& path) {
  std::vector<std::string> rest = path.verb->remaining();
  const auto option = std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word[0] == '-'; });
  if (option == rest.end()) {
    std::erase(rest.front(), bracket_guard);
    return path.typed + " does not accept '" + printable(rest.front()) + "'";
  }
  const std::string word = option->substr(0, option->find('='));
  std::vector<std::string> names;
  for (const CLI::Option* known : path.verb->get_options()) {
    for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  }
  // An option that begins with the typed word, or is the beginning of it, comes before similar names.
  std::optional<std::string> nearest;
  for (const std::string& name : names) {
    if (word.size() > 3 && (name.starts_with(word) || word.starts_with(name))) nearest = name;
  }
  if (!nearest) nearest = placement::nearest_name(word, std::vector<std::string_view>(names.begin(), names.end()));
  return path.typed + " has no option " + printable(word) + (nearest ? "; did you mean " + *nearest + "?" : "");
}

int print_usage_error(const std::string& message) {
  std::fprintf(stderr, "berth: %s\n", message.c_str());
  return wrong_input;
}

}  // namespace

Verb Verb::add(const std::string& name, const std::string& help) const {
  const std::size_t column = app_->get_parent() == nullptr ? verb_column : option_column;
  CLI::App* const verb = app_->add_subcommand(name, wrapped_text(help, help_columns - column));
  if (!app_->get_require_subcommand_min()) app_->require_subcommand(1);
  verb->get_formatter()->column_width(option_column);
  Verb added(*verb, *line_);
  added.footer({});
  return added;
}

void Verb::flag(const std::string& names, bool& into, const std::string& help) {
  app_->add_flag(names, into, option_text(help));
}

void Verb::flag(const std::string& names, std::string& into, const std::string& help) {
  app_->add_flag(names, into, option_text(help));
}

void Verb::option(const std::string& names, const std::string& value, Target into, const std::string& help,
                  const OptionRules& rules) {
  CLI::Option* const added = add_option(*app_, names, into, option_text(help));
  added->type_name(value)->required(rules.required);
  if (takes_several(into)) added->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (rules.range) refuse_outside(*added, rules.range->first, rules.range->second);
  if (rules.environment != nullptr) added->envname(rules.environment);
  if (rules.is_file) added->transform(absolute_path, "", "");
  if (has_default(into) && !rules.required) added->capture_default_str();
}

void Verb::argument(const std::string& value, Target into, const std::string& help, bool required) {
  CLI::Option* const added = add_option(*app_, value, into, option_text(help));
  added->required(required)->type_name("");
  if (has_default(into) && !required) added->capture_default_str();
  if (auto* const words = std::get_if<std::vector<std::string>*>(&into)) {
    rest_ = *words;
    if (value == "COMMAND") app_->positionals_at_end();
  }
}

void Verb::exclude(const std::string& first, const std::string& second) {
  app_->get_option(first)->excludes(app_->get_option(second));
}

void Verb::offer(const std::string& option, std::vector<Names> names) {
  line_->offered[app_->get_option(option)].names = std::move(names);
}

void Verb::offer_words(const std::string& option, std::span<const std::string_view> words) {
  line_->offered[app_->get_option(option)].words.assign(words.begin(), words.end());
}

void Verb::footer(std::vector<std::string> paragraphs, bool exit_status) {
  if (exit_status) paragraphs.emplace_back(exit_status_text);
  std::string text;
  for (const std::string& paragraph : paragraphs)
    text += (text.empty() ? "" : "\n\n") + wrapped_text(paragraph, help_columns);
  app_->footer(text);
}

std::vector<std::string> Verb::given_options() const {
  std::vector<std::string> words;
  std::set<const CLI::Option*> listed;
  for (const CLI::Option* option : app_->parse_order()) {
    if (option->get_positional() || !listed.insert(option).second) continue;
    const std::vector<std::string>& letters = option->get_snames();
    const std::string name = letters.empty() ? "--" + option->get_lnames().front() : "-" + letters.front();
    if (option->get_items_expected_max() == 0) {
      words.push_back(name);
      continue;
    }
    for (std::string value : option->results()) {
      std::erase(value, bracket_guard);
      words.insert(words.end(), {name, std::move(value)});
    }
  }
  return words;
}

void Verb::run(std::function<int()> function) {
  app_->final_callback([function = std::move(function), line = line_, rest = rest_] {
    for (std::size_t i = 0; rest != nullptr && i < rest->size(); ++i) {
      if ((*rest)[i].starts_with(bracket_guard)) (*rest)[i].erase(0, 1);
    }
    line->status = function();
  });
}

int run_command_line(std::span<char*> words, const std::string& version, std::span<void (*const)(const Verb&)> verbs) {
  CommandLine line;
  CLI::App app{"Berth places GPU work on the devices of a machine or a fleet.", "berth"};
  app.set_help_flag("-h,--help", "print this help and exit");
  app.set_version_flag("--version", "berth " + version, "print the version and exit");
  Verb root(app, line);
  for (const auto add_verb : verbs) add_verb(root);
  root.footer({"Every command has its own --help; berth help COMMAND prints it too."});
  // The root gets a formatter of its own, because the verbs share the one with which they were created.
  app.formatter(std::make_shared<CLI::Formatter>());
  app.get_formatter()->column_width(verb_column);
  refuse_empty_values(app);

  // Used only by shells and by the build, and therefore not listed as verbs.
  const std::string_view first = words.size() > 1 ? words[1] : "";
  if (first == "complete") return print_candidates(app, line.offered, words.subspan(2));
  if (first == "man") return write_man_pages(app, version, words.subspan(2));

  // "berth help run" means the same as "berth run --help".
  std::vector<char*> asked(words.begin(), words.end());
  std::string help = "--help";
  if (asked.size() > 1 && std::string_view(asked[1]) == "help") {
    asked.erase(asked.begin() + 1);
    asked.push_back(help.data());
    words = asked;
  }
  const VerbPath path = verb_path(app, words);
  if (path.is_group) {
    const std::size_t last = path.typed.rfind(' ');  // CLI11 adds the last word itself
    std::fputs(path.verb->help(last == std::string::npos ? "" : path.typed.substr(0, last)).c_str(), stderr);
    return print_usage_error("a command is missing: " + path.typed + " COMMAND");
  }
  if (path.unknown) return print_usage_error(*path.unknown);
  if (const std::string empty = option_without_value(words); !empty.empty())
    return print_usage_error(printable(empty) + ": its value is empty; see " + path.typed + " --help");
  // CLI11 takes the words without the program's name, the last one first.
  std::vector<std::string> reversed = guarded(words.subspan(std::min<std::size_t>(1, words.size())));
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::Success& request) {  // --help and --version
    return app.exit(request) == 0 ? done : wrong_input;
  } catch (const CLI::ExtrasError&) {
    return print_usage_error(unexpected_text(path) + "; see " + path.typed + " --help");
  } catch (const CLI::ParseError& error) {
    // A wrong word matters more than a missing one.
    const std::vector<std::string> rest = path.verb->remaining();
    if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !rest.empty())
      return print_usage_error(unexpected_text(path) + "; see " + path.typed + " --help");
    std::string message = error.what();
    std::erase(message, bracket_guard);
    return print_usage_error(printable(message) + "; see " + path.typed + " --help");
  }
  // A full disk or a closed pipe shows up when the last output is flushed.
  if (std::fflush(stdout) != 0 && line.status == done) {
    std::perror("berth: cannot write the output");
    return environment_error;
  }
  return line.status;
}

}  // namespace berth::cli
