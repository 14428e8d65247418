// The command line of `berth`: how verbs declare their options, and how the words are parsed. CLI11
// stays behind this header because every file that includes it takes seconds longer to compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "berth/result.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace berth::cli {

// Where the value of an option is stored. A vector gets every value of a repeated option; a
// function is called with each of them, and its error is wrong input.
using Target =
    std::variant<unsigned*, std::size_t*, double*, std::optional<double>*, std::string*, std::optional<std::string>*,
                 std::vector<std::string>*, std::function<Result<void>(const std::string&)>>;

struct OptionRules {
  bool required = false;
  std::optional<std::pair<std::size_t, std::size_t>> range = {};
  const char* environment = nullptr;  // a variable that is read if the option is absent
  // A file that another process opens from its own working folder: the target gets the absolute path.
  bool is_file = false;
};

// Names of things that exist now, for shell completion.
enum class Names : std::uint8_t {
  jobs,
  unfinished_jobs,
  ended_jobs,
  devices,  // of this machine
  nodes,
  node_paths,  // as node/NAME
  deployments,
  replicas,
  leases,  // of running commands, as berth release takes them
  tokens
};
// What a shell offers for a value: names that exist now, and fixed words.
struct Offer {
  std::vector<Names> names;
  std::vector<std::string> words;
};

// What the verbs share.
struct CommandLine {
  int status = 0;
  std::map<const CLI::Option*, Offer> offered;
};

// One verb while it declares its options. Targets must live until the verb has run: the verb's
// function holds them.
class Verb {
 public:
  Verb(CLI::App& app, CommandLine& line) : app_(&app), line_(&line) {}

  // A verb below this one: "show" of "berth fleet show".
  Verb add(const std::string& name, const std::string& help) const;

  void flag(const std::string& names, bool& into, const std::string& help);
  // A flag that may have a value: "--server" puts "true" there, "--server=URL" the URL.
  void flag(const std::string& names, std::string& into, const std::string& help);
  // `value` is its placeholder in --help. If the target has a default, it is shown there.
  void option(const std::string& names, const std::string& value, Target into, const std::string& help,
              const OptionRules& rules = {});
  // An argument without a name. A vector takes all remaining arguments; one called COMMAND also takes options.
  void argument(const std::string& value, Target into, const std::string& help, bool required = true);
  void exclude(const std::string& first, const std::string& second);
  // What shells offer for the value of an option or argument; for others they offer files.
  void offer(const std::string& option, std::vector<Names> names);
  void offer_words(const std::string& option, std::span<const std::string_view> words);

  // Paragraphs at the end of --help, before the exit status. A verb with its own exit status
  // describes it in the last one.
  void footer(std::vector<std::string> paragraphs, bool exit_status = true);
  // The options on the command line with their values, as words. Call it from the function that runs the verb.
  std::vector<std::string> given_options() const;

  // Sets the function that runs the verb and returns the exit status. Call it last.
  void run(std::function<int()> function);

 private:
  CLI::App* app_;
  CommandLine* line_;
  std::vector<std::string>* rest_ = nullptr;  // the argument that takes all remaining ones
};

// Reads the words and runs the verb they name. Returns the exit status.
int run_command_line(std::span<char*> words, const std::string& version, std::span<void (*const)(const Verb&)> verbs);

}  // namespace berth::cli
