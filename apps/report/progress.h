// Progress: displays the progress of training, as a bar on a terminal, otherwise as plain lines.
#pragma once
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "apps/report/time_split.h"
#include "engine/clock.h"

namespace godwit::apps {

struct ProgressState {
  int64_t step = 0, steps = 0;              // completed steps; steps of the whole run
  int64_t epoch = 0, epochs = 0;            // current epoch, starting at 1; epochs of the whole run
  double loss = 0;                          // mean over recent steps
  std::optional<double> accuracy;           // over recent steps, in [0, 1]; unset if the task has no accuracy
  double samples_per_s = 0;                 // sum over the workers
  double bytes_intra = 0, bytes_inter = 0;  // bytes per step within nodes, and between nodes
  double seconds_left = 0;                  // negative if not yet known
  std::string unit = "images";              // name of a sample
  TimeSplit times = {};                     // times of a step; total 0: unknown
};

std::string human_bytes(double bytes);                          // "512 B", "34.1 kB", "1.20 MB": powers of 1000
std::string percent(double fraction);                           // "81.25 %"
std::string with_digits(double value);                          // five significant digits: "4.2017", "1.2346e+06"
std::string human_duration(double seconds);                     // "0.4 s", "12 s", "3 min 05 s", "2 h 10 min"
// Renders the bar with at most `width` columns. Drops parts that do not fit: first the bar, then the parts of a step's
// time from last to first, then epoch, step, …. Drops the loss and the time left last.
std::string render_bar(const ProgressState& state, int width);
std::string render_line(const ProgressState& state);            // all parts as one line of text

// Prints all output of a run, so that no line overwrites the bar. A failed write is reported once on stderr.
// Thread-safe.
class Progress {
 public:
  enum class Style { automatic, bar, lines };  // automatic: a bar if `out` is a terminal
  explicit Progress(std::FILE* out = stdout, Style style = Style::automatic, double seconds_between_lines = 5);
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;

  void update(const ProgressState& state);  // redraws the bar at most ten times per second, and for the last step
  void line(const std::string& text);       // prints `text` and a newline above the bar
  void finish();                            // clears the bar; the next update() draws it again

 private:
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

// A function that prints "<what>: 3 of 10" at most every two seconds, so shorter work prints nothing. `progress` may be
// null, which gives an empty function.
std::function<void(int64_t done, int64_t total)> reporter(Progress* progress, const std::string& what);

}  // namespace godwit::apps
