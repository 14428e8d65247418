// A terminal that is drawn again and again without flicker, and the signals
// that end, suspend or resize such a command. What was on the terminal before
// comes back when the screen goes, whatever the reason.
#pragma once

#include <csignal>
#include <string>

#include "berth/clock.hpp"
#include "cli/terminal.hpp"

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
  // Replaces what is shown; lines beyond the terminal's size are cut. False:
  // the terminal is gone.
  bool draw(const std::string& text, const Style& style);
  // Gives the terminal back, stops this process until it is continued, and
  // takes the terminal again.
  void suspend();

 private:
  void enter();
  void leave();
  bool active_;
};

}  // namespace berth::cli
