#include "apps/report/progress.h"

#include <stdio_ext.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace godwit::apps {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr const char* kClearLine = "\r\x1b[K";

template <class... Args>
std::string print(const char* format, Args... args) {
  char text[96];
  std::snprintf(text, sizeof text, format, detail::unsigned_nan(args)...);
  return text;
}

// Formats with `digits` significant digits: "34.1 kB" has three.
std::string bytes_text(double bytes, int digits) {
  if (!(bytes >= 0) || std::isinf(bytes)) return "? B";
  const char* units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  int decimals = unit == 0 ? 0 : digits - 1;
  while (decimals > 0 && bytes >= std::pow(10, digits - decimals) - 0.5 * std::pow(10, -decimals)) --decimals;
  return print("%.*f %s", decimals, bytes, units[unit]);
}

std::string rate_text(double per_second) { return print("%.*f", per_second < 9.95 ? 1 : 0, per_second); }

std::string short_bytes(double intra, double inter) {
  if (intra != 0 && inter != 0) return bytes_text(intra, 2) + " intra + " + bytes_text(inter, 2) + " inter";
  return bytes_text(intra != 0 ? intra : inter, 2) + "/step";
}

// "12s", "3m05s", "2h11m", "3d04h".
std::string short_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const long long s = std::llround(seconds), minutes = std::llround(seconds / 60), hours = std::llround(seconds / 3600);
  if (s < 60) return print("%llds", s);
  if (s < 3600) return print("%lldm%02llds", s / 60, s % 60);
  if (minutes < 48 * 60) return print("%lldh%02lldm", minutes / 60, minutes % 60);
  return print("%lldd%02lldh", hours / 24, hours % 24);
}

double fraction_done(const ProgressState& s) {
  return s.steps > 0 ? std::clamp(static_cast<double>(s.step) / static_cast<double>(s.steps), 0.0, 1.0) : 0;
}

std::string count_text(const char* word, int64_t done, int64_t all) {
  return print("%s %lld/%lld", word, static_cast<long long>(done), static_cast<long long>(all));
}

// Shares of a step's time, the most important first. A share that rounds to 0 % is left out.
std::vector<std::string> shares(const TimeSplit& times, bool brief) {
  const auto percent_of = [&](double seconds) {
    return times.total > 0 ? std::lround(100 * seconds / times.total) : 0;
  };
  std::vector<std::string> texts;
  const auto add = [&](const char* name, const char* brief_name, double seconds) {
    if (const long share = percent_of(seconds); share > 0)
      texts.push_back(print("%s %ld%%", brief ? brief_name : name, share));
  };
  add("forward", "fwd", times.forward);
  add("backward", "bwd", times.backward);
  add("exposed communication", "comm", times.exposed_communication);
  if (const long all = percent_of(times.communication); !brief && all > 0) {
    if (percent_of(times.exposed_communication) == 0) texts.emplace_back("exposed communication 0%");
    texts.back() += print(" of %ld%%", all);
  }
  add("compression", "compr", times.exposed_compression);
  add("update", "upd", times.exposed_update);
  add("data", "data", times.data_wait);
  return texts;
}

bool knows_time_left(const ProgressState& s) { return s.seconds_left >= 0 && s.step < s.steps; }

// One part of the text next to the bar. If the line is too long, parts are dropped in descending order of rank.
struct Part {
  int rank;
  std::string text;
};

std::vector<Part> short_parts(const ProgressState& s) {
  std::vector<Part> parts = {{5, print("%d%%", static_cast<int>(100 * fraction_done(s)))},
                             {7, count_text("epoch", s.epoch, s.epochs)},
                             {6, count_text("step", s.step, s.steps)},
                             {1, print("loss %.4f", s.loss)},
                             {3, rate_text(s.samples_per_s) + " " + (s.unit == "images" ? "img" : s.unit) + "/s"},
                             {4, short_bytes(s.bytes_intra, s.bytes_inter)}};
  if (s.accuracy) parts.insert(parts.begin() + 4, {2, print("acc %.1f%%", 100 * *s.accuracy)});
  int rank = 8;
  for (const std::string& share : shares(s.times, true)) parts.push_back({rank++, share});
  if (knows_time_left(s)) parts.push_back({0, short_duration(s.seconds_left) + " left"});
  return parts;
}

std::string joined(const std::vector<Part>& parts) {
  std::string text;
  for (const Part& part : parts) text.append(text.empty() ? "" : "  ").append(part.text);
  return text;
}

std::string bar_text(double done, int width) {
  const int full = static_cast<int>(done * width);
  std::string text(static_cast<size_t>(full), '=');
  if (full < width) text.append(">").append(static_cast<size_t>(width - full - 1), ' ');
  return "[" + text + "]";
}

int terminal_width(std::FILE* out) {
  winsize size{};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

bool is_terminal(std::FILE* out) {
  const char* term = std::getenv("TERM");
  return ::isatty(::fileno(out)) && term && std::strcmp(term, "dumb") != 0;
}

}  // namespace

std::string human_bytes(double bytes) { return bytes_text(bytes, 3); }

std::string percent(double fraction) { return print("%.2f %%", 100 * fraction); }

std::string with_digits(double value) { return print("%.5g", value); }

std::string human_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  if (seconds < 9.95) return print("%.1f s", seconds);
  const long long s = std::llround(seconds), minutes = std::llround(seconds / 60), hours = std::llround(seconds / 3600);
  if (s < 60) return print("%lld s", s);
  if (s < 3600) return print("%lld min %02lld s", s / 60, s % 60);
  if (minutes < 48 * 60) return print("%lld h %02lld min", minutes / 60, minutes % 60);
  return print("%lld d %02lld h", hours / 24, hours % 24);
}

std::string render_line(const ProgressState& s) {
  std::string text = count_text("epoch", s.epoch, s.epochs) + "  " + count_text("step", s.step, s.steps);
  text += print("  loss %.4f", s.loss);
  if (s.accuracy) text += print("  accuracy %.1f%%", 100 * *s.accuracy);
  text += "  " + rate_text(s.samples_per_s) + " " + s.unit + "/s  ";
  text += human_bytes(s.bytes_inter) + " inter, " + human_bytes(s.bytes_intra) + " intra per step";
  const char* between = "  ";
  for (const std::string& share : shares(s.times, false)) {
    text += between + share;
    between = ", ";
  }
  return knows_time_left(s) ? text + "  " + human_duration(s.seconds_left) + " left" : text;
}

std::string render_bar(const ProgressState& state, int width) {
  constexpr int kShortest = 10, kLongest = 30, kAround = 3;  // kAround: "[", "]" and a space
  const auto room = static_cast<size_t>(std::max(width, 0));
  std::vector<Part> parts = short_parts(state);
  while (parts.size() > 1 && joined(parts).size() > room)
    parts.erase(std::max_element(parts.begin(), parts.end(), [](auto& a, auto& b) { return a.rank < b.rank; }));
  const std::string text = joined(parts);
  const int left = static_cast<int>(room) - static_cast<int>(text.size()) - kAround;
  if (left < kShortest) return text.substr(0, room);
  return bar_text(fraction_done(state), std::min(left, kLongest)) + " " + text;
}

Progress::Progress(std::FILE* out, Style style, double seconds_between_lines)
    : out_(out),
      bar_(style == Style::automatic ? is_terminal(out) : style == Style::bar),
      seconds_between_(bar_ ? kRedrawSeconds : seconds_between_lines) {}

Progress::~Progress() { finish(); }

void Progress::update(const ProgressState& state) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  const bool last_step = state.step >= state.steps && state.step != state_.step;
  state_ = state;
  if (shown_ && !last_step && std::chrono::duration<double>(now - last_).count() < seconds_between_) return;
  last_ = now;
  shown_ = true;
  if (bar_) {
    draw();
  } else {
    std::fprintf(out_, "%s\n", render_line(state).c_str());
  }
  flush();
}

void Progress::line(const std::string& text) {
  const std::lock_guard lock(mutex_);
  const bool redraw = drawn_;
  clear();
  std::fprintf(out_, "%s\n", text.c_str());
  if (redraw) draw();
  flush();
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  const bool was_drawn = drawn_;
  clear();
  shown_ = false;
  if (was_drawn) flush();
}

void Progress::flush() {
  if (std::fflush(out_) == 0 && !std::ferror(out_)) return;
  if (!lost_)
    std::fprintf(stderr, "output cannot be written (%s); the run continues; its metrics are in the run directory\n",
                 std::strerror(errno));
  lost_ = true;
  ::__fpurge(out_);
  std::clearerr(out_);
}

void Progress::draw() {
  clear();
  // Leaves one column free, because some terminals wrap as soon as the last column is written.
  std::fputs(render_bar(state_, terminal_width(out_) - 1).c_str(), out_);
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_) std::fputs(kClearLine, out_);
  drawn_ = false;
}

std::function<void(int64_t done, int64_t total)> reporter(Progress* progress, const std::string& what) {
  if (!progress) return {};
  return [progress, what, shown = Clock::now()](int64_t done, int64_t total) mutable {
    if (seconds_since(shown) < 2) return;
    shown = Clock::now();
    progress->line(what + ": " + std::to_string(done) + " of " + std::to_string(total));
  };
}

}  // namespace godwit::apps
