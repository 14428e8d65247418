// A full-screen view that is redrawn without flicker, and the signals that end, suspend
// or resize it. The previous content of the terminal is restored when it ends.
#pragma once

#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "berth/clock.hpp"
#include "cli/text/terminal.hpp"
#include "world/descriptor.hpp"

namespace berth::cli {

enum class Interruption { none, end, suspend, redraw };

// While an object exists, wait_until() returns the signals of the terminal. They are blocked in this
// thread and in those it starts; a thread that existed before, such as a driver's, forwards them to
// this one. Only one object may exist at a time.
class Interruptions {
 public:
  Interruptions();
  ~Interruptions();
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  // Returns the next signal, or none if the time is reached first. `keys`: a terminal on which the key q also ends
  // the view.
  Interruption wait_until(TimePoint when, int keys = -1);

 private:
  sigset_t signals_{};
  world::Descriptor pending_;  // can be read while one of the signals is pending
  sigset_t before_{};
  std::map<int, struct sigaction> actions_before_;
};

class Screen {
 public:
  // An inactive screen does nothing.
  explicit Screen(bool active);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool active() const { return active_; }
  // The terminal from which this screen reads keys, unbuffered and without echo; negative: none.
  int keys() const { return typed_before_ ? STDIN_FILENO : -1; }
  // Restores the terminal for good.
  void close();
  // Replaces what is shown; lines beyond the terminal's size are cut, and the last line gives their number. False:
  // the terminal is gone.
  bool draw(const std::string& text, const Style& style);
  // Restores the terminal, stops this process until it is continued, and enters the
  // screen again.
  void suspend();

 private:
  void enter();
  void leave();
  bool active_;
  std::optional<termios> typed_before_;  // previous keyboard settings of the terminal
};

// What a verb with --watch shows; called once a second.
struct Watched {
  std::function<Result<void>()> refresh;  // an error ends the watch
  // The state of the last refresh.
  std::function<std::string(const Style&)> text;
  std::function<std::string()> errors;  // lines for stderr, below the text on a terminal
};

// Redraws in place on a terminal unless `append` is given, appends elsewhere. An
// interrupt, or the key q on a terminal, ends it with status 0, and the last text stays.
int watch(const Watched& watched, bool append);

}  // namespace berth::cli
