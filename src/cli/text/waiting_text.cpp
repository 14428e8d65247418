#include "cli/text/waiting_text.hpp"

#include "cli/text/candidates_text.hpp"

namespace berth::cli {

std::string waiting_text(const WaitingJob& job, const Style& style) {
  const auto sentence = [&](const std::string& text) { return sentence_text(text, job.ids, style); };
  const Explanation& explanation = job.explanation;
  if (!explanation.winners.empty())
    return sentence(job.label + " is about to start: " + job.reason) + "\n" +
           candidates_text(explanation, job.ids, style);
  std::string text =
      sentence(job.label + " is waiting at place " + std::to_string(job.place) + " in line: " + job.reason) +
      sentence(explanation.funnel_text()) + "\n" + candidates_text(explanation, job.ids, style);
  if (!job.ahead.empty())
    text += "\n" + sentence("in the way: " + job.ahead + " is ahead of it in line and is served first");
  if (const std::string held = occupants_text(job.holding, job.users, style); !held.empty())
    text += std::string(job.ahead.empty() ? "\nin the way:\n" : "\nalso on these devices:\n") + held;
  if (job.is_limited) {
    const std::string start = job.start.empty() ? "" : sentence("it starts " + job.start);
    return text + "\n" + start + limit_text(true, style);
  }
  if (!job.changes.empty()) {
    text += "\n" + sentence("each of these changes alone would let it start; a smaller one would not:") +
            changes_text(job.changes, job.ids, style);
  } else {
    text += "\nno single change would let it start\n";
  }
  text +=
      "\n" + sentence(job.start.empty() ? "its start cannot be estimated: it waits for work other than your jobs, or "
                                          "for a job without a time limit"
                                        : "it starts " + job.start);
  if (job.changes.empty()) return text;
  const std::string& command = job.changes.front().command;
  return text + sentence("next: " + (command.starts_with("-")
                                         ? "berth stop " + job.id + ", then start it again with " + command
                                         : command));
}

}  // namespace berth::cli
