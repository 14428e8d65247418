// What a shell offers for the word that is being typed: verbs, options and names that exist now. The verbs and options
// are those that read the command line (command_line.hpp). contrib/completions has the part of each shell.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "cli/command_line.hpp"

namespace berth::cli {

struct Candidate {
  std::string word;
  std::string about;
};

// `berth complete WORD...`: the words after "berth"; the last one, which may be empty, is being typed. Prints a
// candidate per line, with a tab before its description. Returns 1 if a file name may be meant.
int print_candidates(const CLI::App& app, const std::map<const CLI::Option*, Offer>& offered,
                     std::span<char* const> words);

// Where to look for names: the values of options typed earlier.
struct NameSources {
  std::string server, ca_file, simulated_file;  // empty: the option is absent
};
// What cannot be found in two seconds is left out without a message.
std::vector<Candidate> find_names(Names names, const NameSources& sources);

}  // namespace berth::cli
