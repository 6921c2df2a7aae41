// What a run shows while it trains: a bar on a terminal, plain lines anywhere else.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

namespace godwit::apps {

struct ProgressState {
  int64_t step = 0, steps = 0;              // done, in the whole run
  int64_t epoch = 0, epochs = 0;            // the current one, from 1
  double loss = 0, accuracy = 0;            // of recent steps; accuracy in [0, 1]
  double samples_per_s = 0;                 // all workers together
  double bytes_intra = 0, bytes_inter = 0;  // per step, within nodes and between them
  double seconds_left = 0;                  // negative: not known yet
  std::string unit = "images";              // what samples are
};

std::string human_bytes(double bytes);                          // "512 B", "34.1 kB", "1.20 MB": powers of 1000
std::string percent(double fraction);                           // "81.25 %"
std::string human_duration(double seconds);                     // "0.4 s", "12 s", "3 min 05 s", "2 h 10 min"
std::string render_bar(const ProgressState& state, int width);  // at most `width` columns; what does not fit is left
                                                                // out: the bar, epoch, step, … loss and time last
std::string render_line(const ProgressState& state);            // everything, as a line of text

// All of a run's output goes through one Progress, so that nothing prints over the bar. What cannot be written is lost,
// which stderr says once. Thread-safe.
class Progress {
 public:
  enum class Style { automatic, bar, lines };  // automatic: a bar when `out` is a terminal
  explicit Progress(std::FILE* out = stdout, Style style = Style::automatic, double seconds_between_lines = 5);
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;

  void update(const ProgressState& state);  // the bar at most ten times a second; the last step always
  void line(const std::string& text);       // prints `text` and a newline above the bar
  void finish();                            // clears the bar; a later update draws it again

 private:
  using Clock = std::chrono::steady_clock;
  void draw();
  void clear();
  void flush();

  std::FILE* out_;
  bool bar_;
  double seconds_between_;
  std::mutex mutex_;
  ProgressState state_;
  bool drawn_ = false, shown_ = false, lost_ = false;
  Clock::time_point last_;
};

}  // namespace godwit::apps
