#include "cli/text/screen.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <sstream>

namespace berth::cli {

using namespace world;
namespace {

constexpr Duration watch_period = std::chrono::seconds(1);

bool write_all(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
    if (written < 0 && errno != EINTR) return false;
    at += static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
  return true;
}

std::atomic<pthread_t> waiting_thread;

void pass_on(int signal) { pthread_kill(waiting_thread.load(), signal); }

}  // namespace

Interruptions::Interruptions() {
  waiting_thread = pthread_self();
  struct sigaction action{};
  action.sa_handler = pass_on;
  action.sa_flags = SA_RESTART;
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH}) {
    sigaddset(&signals_, signal);
    struct sigaction& before = actions_before_[signal];
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  pending_ = world::Descriptor(signalfd(-1, &signals_, SFD_CLOEXEC));
}

Interruptions::~Interruptions() {
  // Discards pending signals, because they were meant for the view that has ended.
  const timespec at_once{};
  while (sigtimedwait(&signals_, nullptr, &at_once) > 0) continue;
  for (const auto& [signal, before] : actions_before_) sigaction(signal, &before, nullptr);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Interruption Interruptions::wait_until(TimePoint when, int keys) {
  for (;;) {
    const Duration left = std::max(Duration::zero(), when - real_clock().now());
    const timespec timeout{static_cast<time_t>(left / std::chrono::seconds(1)),
                           static_cast<long>((left % std::chrono::seconds(1)).count())};
    pollfd sources[] = {{pending_.get(), POLLIN, 0}, {keys, POLLIN, 0}};
    if (ppoll(sources, std::size(sources), &timeout, nullptr) == 0) return Interruption::none;
    char key = 0;
    if (sources[1].revents != 0) {
      const ssize_t count = read(keys, &key, 1);
      if (count < 0 || (count == 0 && (sources[1].revents & POLLHUP) != 0)) keys = -1;  // the terminal is gone
      if (key == 'q' || key == 'Q') return Interruption::end;
    }
    const timespec at_once{};
    switch (sigtimedwait(&signals_, nullptr, &at_once)) {
      case SIGINT:
      case SIGTERM:
      case SIGHUP: return Interruption::end;
      case SIGTSTP: return Interruption::suspend;
      case SIGWINCH: return Interruption::redraw;
      default: break;
    }
  }
}

// The alternate screen does not touch the scrollback.
void Screen::enter() {
  write_all("\033[?1049h\033[?25l");
  // In the background, the keyboard belongs to another program, and a change would stop this one.
  termios now{};
  if (tcgetpgrp(STDIN_FILENO) != getpgrp() || tcgetattr(STDIN_FILENO, &now) != 0) return;
  typed_before_ = now;
  now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  now.c_cc[VMIN] = 0;  // a read never waits: Ctrl-C discards keys, even those that poll() has already reported
  tcsetattr(STDIN_FILENO, TCSANOW, &now);
}
void Screen::leave() {
  if (typed_before_) tcsetattr(STDIN_FILENO, TCSANOW, &*typed_before_);
  typed_before_.reset();
  write_all("\033[?25h\033[?1049l");
}

Screen::Screen(bool active) : active_(active) {
  if (active_) enter();
}
Screen::~Screen() { close(); }

void Screen::close() {
  if (active_) leave();
  active_ = false;
}

bool Screen::draw(const std::string& text, const Style& style) {
  winsize size{};
  const std::size_t rows = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
  // Every line ends with "clear to end of line", so the screen is never blank in between;
  // mode 2026 lets terminals that support it update the whole screen in one step.
  std::string frame = "\033[?2026h\033[H";
  const auto total = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  const std::size_t shown = total > rows ? rows - 1 : total;
  std::istringstream lines(text);
  std::size_t drawn = 0;
  const auto add = [&](std::string line) {
    frame += (drawn++ > 0 ? "\r\n" : "") + cut(style, std::move(line), style.columns) + "\033[K";
  };
  for (std::string line; drawn < shown && std::getline(lines, line);) add(std::move(line));
  if (shown < total) add("(" + std::to_string(total - shown) + " more lines" + ")");
  return write_all(frame + "\033[J\033[?2026l");
}

void Screen::suspend() {
  if (active_) leave();
  raise(SIGSTOP);
  if (active_) enter();
}

int watch(const Watched& watched, bool append) {
  Interruptions interruptions;
  {
    Screen screen(stdout_is_terminal() && !append);
    const auto show = [&] {
      const Style style = stdout_style();
      if (screen.active()) return screen.draw(watched.text(style) + watched.errors(), style);
      std::fputs(watched.errors().c_str(), stderr);
      return print(watched.text(style)) == done;
    };
    for (Interruption what = Interruption::none; what != Interruption::end;) {
      const TimePoint next = real_clock().now() + watch_period;
      if (const Result<void> fresh = watched.refresh(); !fresh) {
        screen.close();
        return print_error(fresh.error());
      }
      if (!show()) return environment_error;
      do {
        what = interruptions.wait_until(next, screen.keys());
        if (what == Interruption::suspend) screen.suspend();
        const bool changed = what == Interruption::redraw || what == Interruption::suspend;
        if (changed && screen.active() && !show()) return environment_error;
      } while (what == Interruption::redraw || what == Interruption::suspend);
    }
    if (!screen.active()) return done;
  }
  return print(watched.text(stdout_style()));
}

}  // namespace berth::cli
