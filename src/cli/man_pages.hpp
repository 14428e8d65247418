// The manual pages, from the same texts as --help (command_line.hpp): berth.1 and one page for every verb.
#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace berth::cli {

// `berth man FOLDER`: writes them into FOLDER. Returns the exit status.
int write_man_pages(const CLI::App& app, const std::string& version, std::span<char* const> words);

}  // namespace berth::cli
