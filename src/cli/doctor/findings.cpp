#include "cli/doctor/doctor.hpp"
#include "format/json_text.hpp"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

namespace berth::cli {

using namespace format;
using namespace world;
namespace {

Colour colour_of(Severity severity) {
  switch (severity) {
    case Severity::ok: return Colour::green;
    case Severity::note: return Colour::cyan;
    case Severity::warning: return Colour::yellow;
    case Severity::error: return Colour::red;
  }
  return Colour::none;
}

}  // namespace

std::string_view to_string(Severity severity) noexcept {
  switch (severity) {
    case Severity::ok: return "ok";
    case Severity::note: return "note";
    case Severity::warning: return "warning";
    case Severity::error: return "error";
  }
  return "ok";
}

const std::string* Facts::variable(std::string_view name) const {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : &found->second;
}

const BackendAnswer* Facts::answer(std::string_view backend) const {
  const auto found = std::find_if(answers.begin(), answers.end(),
                                  [&](const BackendAnswer& answer) { return answer.backend == backend; });
  return found == answers.end() ? nullptr : &*found;
}

std::vector<Finding> examine(const Facts& facts) {
  std::vector<Finding> findings;
  for (const Severity severity : {Severity::error, Severity::warning, Severity::note, Severity::ok}) {
    for (const Check& check : checks()) {
      for (Finding& finding : check.look(facts)) {
        if (finding.severity != severity) continue;
        finding.check = check.name;
        findings.push_back(std::move(finding));
      }
    }
  }
  return findings;
}

std::string findings_text(std::span<const Finding> findings, const Style& style) {
  constexpr std::size_t severity_width = 9;  // "warning" and two blanks
  std::size_t check_width = 0;
  for (const Finding& finding : findings) check_width = std::max(check_width, finding.check.size() + 2);
  const std::size_t indent = severity_width + check_width;
  const std::size_t width = style.columns > indent + 30 ? style.columns - indent : 30;
  const std::string blank(indent, ' ');

  std::string text;
  std::array<std::size_t, 4> counts{};
  for (const Finding& finding : findings) {
    ++counts[static_cast<std::size_t>(finding.severity)];
    const std::string severity(to_string(finding.severity)), check(finding.check);
    std::string lead = paint(style, colour_of(finding.severity), severity) +
                       std::string(severity_width - severity.size(), ' ') + check +
                       std::string(check_width - check.size(), ' ');
    for (const std::string& line : wrapped(printable(finding.message), width)) {
      text += lead + line + "\n";
      lead = blank;
    }
    for (const std::string& line : wrapped(printable(finding.why), width))
      text += blank + paint(style, Colour::dim, line) + "\n";
    // Not wrapped, so that it can be copied. A long command starts further to the left.
    if (finding.fix.empty()) continue;
    const std::string fix = "> " + printable(finding.fix);
    const bool fits = indent + shown_width(fix) <= style.columns;
    text += (fits ? blank : std::string(2, ' ')) + paint(style, Colour::bold, fix) + "\n";
  }
  const auto count = [&](Severity severity) { return counts[static_cast<std::size_t>(severity)]; };
  return text + "\n" + counted(count(Severity::error), "error") + ", " + counted(count(Severity::warning), "warning") +
         ", " + counted(count(Severity::note), "note") + ".\n";
}

std::string findings_json(std::span<const Finding> findings) {
  boost::json::array out;
  for (const Finding& finding : findings) {
    out.push_back({{"severity", to_string(finding.severity)},
                   {"check", finding.check},
                   {"message", finding.message},
                   {"why", finding.why},
                   {"fix", finding.fix}});
  }
  return json_text(out) + "\n";
}

}  // namespace berth::cli
