// A terminal that is drawn again and again without flicker, and the signals
// that end, suspend or resize such a command. What was on the terminal before
// comes back when the screen goes, whatever the reason.
#pragma once

#include <csignal>
#include <functional>
#include <string>

#include "berth/clock.hpp"
#include "cli/text/terminal.hpp"

namespace berth::cli {

enum class Interruption { none, end, suspend, redraw };

// While it lives, the signals of the terminal wait to be asked for instead of
// striking this thread and those it starts. One at a time, on the main thread.
class Interruptions {
 public:
  Interruptions();
  ~Interruptions();
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  // The next signal, or none when the time comes first.
  Interruption wait_until(TimePoint when);

 private:
  sigset_t signals_{};
  sigset_t before_{};
};

class Screen {
 public:
  // Not active: does nothing.
  explicit Screen(bool active);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool active() const { return active_; }
  // Gives the terminal back for good.
  void close();
  // Replaces what is shown; lines beyond the terminal's size are cut, and the last
  // one says how many. False: the terminal is gone.
  bool draw(const std::string& text, const Style& style);
  // Gives the terminal back, stops this process until it is continued, and
  // takes the terminal again.
  void suspend();

 private:
  void enter();
  void leave();
  bool active_;
};

// What a command with --watch shows, asked for once a second.
struct Watched {
  std::function<Result<void>()> refresh;  // an error ends the watching
  // What is there since the last refresh, on a terminal or appended to a file.
  std::function<std::string(const Style&)> text;
  std::function<std::string()> complaints;  // lines for stderr, below the text on a terminal
};

// Redraws in place on a terminal unless `append` is given, appends elsewhere.
// Interrupting it is how it is meant to end: status 0, and the last text stays.
int watch(const Watched& watched, bool append);

}  // namespace berth::cli
