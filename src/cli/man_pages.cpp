#include "cli/man_pages.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <vector>

#include "cli/text/terminal.hpp"
#include "world/files.hpp"

namespace berth::cli {

using namespace world;
namespace {

// Escapes text for roff, and keeps the line breaks of --help.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\'')
      out += "\\(aq";
    else if (c == '`')
      out += "\\(ga";
    else if (c == '^')
      out += "\\(ha";
    else if (c == '~')
      out += "\\(ti";
    else if (c == '"')
      out += "\\(dq";
    else if (c == '\n')
      out += ' ';
    else
      out += c;
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

std::vector<std::string> paragraphs(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find("\n\n", begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  return out;
}

std::string man_item(const std::string& name, const std::string& text) {
  return ".TP\n" + name + "\n" + roff(text) + "\n";
}

std::string man_verb_item(const CLI::App& verb) {
  return man_item("\\fB" + roff(verb.get_name()) + "\\fR", verb.get_description());
}

std::string man_options(const CLI::App& verb, bool arguments) {
  std::string out;
  const CLI::Formatter format;
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_positional() != arguments) continue;
    const std::string name = format.make_option_name(option, arguments);
    std::string rest = format.make_option_opts(option), about = option->get_description();
    rest.erase(std::min(rest.find(" Excludes:"), rest.size()));
    // The synopsis shows which arguments are required.
    if (const std::size_t required = rest.find(" REQUIRED"); arguments && required != std::string::npos)
      rest.erase(required, std::string_view(" REQUIRED").size());
    for (const CLI::Option* other : option->get_excludes()) about += "; not with " + other->get_name();
    out += man_item("\\fB" + roff(name) + "\\fR\\fI" + roff(rest) + "\\fR", about);
  }
  return out;
}

// "berth token add [OPTIONS] ROLE", without the words before it.
std::string man_usage(const CLI::App& verb, const std::string& name) {
  std::string text = CLI::Formatter().make_usage(&verb, name);
  text.erase(0, text.find(' ') + 1);
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

std::string man_section(const std::string& heading, const std::string& text) {
  return text.empty() ? "" : ".SH " + heading + "\n" + text;
}

std::string man_footer(const CLI::App& verb) {
  std::string out;
  for (const std::string& paragraph : paragraphs(verb.get_footer())) out += ".PP\n" + roff(paragraph) + "\n";
  return out;
}

// A verb below another one, on that verb's page.
std::string man_subsection(const CLI::App& verb, const std::string& name) {
  return ".SS " + roff(man_usage(verb, name)) + "\n" + roff(verb.get_description()) + "\n" + man_options(verb, true) +
         man_options(verb, false) + man_footer(verb);
}

std::string man_page(const CLI::App& verb, const std::string& name, const std::string& title,
                     const std::string& version) {
  std::string text = ".\\\" Written by berth man\n.TH \"" + title + "\" 1 \"\" \"berth " + version + "\" \"Berth\"\n";
  text += man_section("NAME", title + " \\- " + roff(verb.get_description()) + "\n");
  text += man_section("SYNOPSIS", roff(man_usage(verb, name)) + "\n");
  text += man_section("DESCRIPTION", man_footer(verb));
  text += man_section("ARGUMENTS", man_options(verb, true)) + man_section("OPTIONS", man_options(verb, false));
  std::string below;
  const bool is_root = verb.get_parent() == nullptr;
  for (const CLI::App* each : verb.get_subcommands({}))
    below += is_root ? man_verb_item(*each) : man_subsection(*each, name + " " + each->get_name());
  text += man_section("COMMANDS", below);
  const std::string others =
      is_root ? "\\fBberth\\-run\\fR(1) and the pages of the other commands\n" : "\\fBberth\\fR(1)\n";
  return text + man_section("SEE ALSO", others);
}

}  // namespace

int write_man_pages(const CLI::App& app, const std::string& version, std::span<char* const> words) {
  if (words.size() != 1)
    return print_error({ErrorCode::invalid_argument, "no folder was named", "write berth man FOLDER"});
  const std::string folder = words.front();
  if (const auto written = write_text(folder + "/berth.1", man_page(app, "berth", "berth", version)); !written)
    return print_error(written.error());
  for (const CLI::App* verb : app.get_subcommands({})) {
    const std::string title = "berth-" + verb->get_name();
    const auto written =
        write_text(folder + "/" + title + ".1", man_page(*verb, "berth " + verb->get_name(), title, version));
    if (!written) return print_error(written.error());
  }
  return done;
}

}  // namespace berth::cli
