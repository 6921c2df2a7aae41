#include "apps/report/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

namespace godwit::apps {
namespace progress_test {

ProgressState some_state() { return {812, 2340, 2, 5, 0.43215, 0.8514, 1234.4, 0, 68096, 185}; }

// Captures the output of a Progress.
class Output {
 public:
  Output() : file_(::open_memstream(&text_, &size_)) {}
  ~Output() {
    std::fclose(file_);
    std::free(text_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// The lines that a terminal finally shows: \r moves to the first column, ESC [K clears to the end of the line.
std::vector<std::string> on_screen(const std::string& text) {
  std::vector<std::string> lines(1);
  size_t column = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      column = 0;
    } else if (text.compare(i, 3, "\x1b[K") == 0) {
      lines.back().resize(column);
      i += 2;
    } else if (text[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else {
      lines.back().resize(std::max(lines.back().size(), column + 1), ' ');
      lines.back()[column++] = text[i];
    }
  }
  return lines;
}

TEST(Progress, HumanBytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(999.4), "999 B");
  EXPECT_EQ(human_bytes(999.5), "1.00 kB");
  EXPECT_EQ(human_bytes(34102), "34.1 kB");
  EXPECT_EQ(human_bytes(9994), "9.99 kB");
  EXPECT_EQ(human_bytes(9996), "10.0 kB");
  EXPECT_EQ(human_bytes(999499), "999 kB");
  EXPECT_EQ(human_bytes(999501), "1.00 MB");
  EXPECT_EQ(human_bytes(1.2e6), "1.20 MB");
  EXPECT_EQ(human_bytes(3e21), "3000000 PB");
  EXPECT_EQ(human_bytes(-1), "? B");
  EXPECT_EQ(human_bytes(NAN), "? B");
  EXPECT_EQ(human_bytes(INFINITY), "? B");
}

TEST(Progress, HumanDuration) {
  EXPECT_EQ(human_duration(0), "0.0 s");
  EXPECT_EQ(human_duration(0.44), "0.4 s");
  EXPECT_EQ(human_duration(9.96), "10 s");
  EXPECT_EQ(human_duration(12.3), "12 s");
  EXPECT_EQ(human_duration(59.6), "1 min 00 s");
  EXPECT_EQ(human_duration(185), "3 min 05 s");
  EXPECT_EQ(human_duration(3599.6), "1 h 00 min");
  EXPECT_EQ(human_duration(7830), "2 h 11 min");
  EXPECT_EQ(human_duration(3600 * 76.0), "3 d 04 h");
  EXPECT_EQ(human_duration(-1), "?");
  EXPECT_EQ(human_duration(NAN), "?");
  EXPECT_EQ(human_duration(INFINITY), "?");
}

TEST(Progress, LineContainsAllValues) {
  EXPECT_EQ(render_line(some_state()),
            "epoch 2/5  step 812/2340  loss 0.4321  accuracy 85.1%  1234 images/s  68.1 kB inter, 0 B intra per step  "
            "3 min 05 s left");
}

TEST(Progress, NanHasNoSign) {
  ProgressState state = some_state();
  state.loss = -std::nan("");
  EXPECT_NE(render_line(state).find("  loss nan  "), std::string::npos) << render_line(state);
  EXPECT_EQ(with_digits(-std::nan("")), "nan");
  EXPECT_EQ(percent(-std::nan("")), "nan %");
}

TimeSplit some_times() {
  return {.forward = 0.28, .backward = 0.42, .data_wait = 0.02, .exposed_compression = 0.01,
          .exposed_communication = 0.17, .exposed_update = 0.03, .communication = 0.4, .total = 1};
}

TEST(Progress, LineContainsThePartsOfAStep) {
  ProgressState state = some_state();
  state.times = some_times();
  EXPECT_EQ(render_line(state),
            "epoch 2/5  step 812/2340  loss 0.4321  accuracy 85.1%  1234 images/s  68.1 kB inter, 0 B intra per step  "
            "forward 28%, backward 42%, exposed communication 17% of 40%, compression 1%, update 3%, data 2%  "
            "3 min 05 s left");
  state.times.exposed_compression = state.times.data_wait = 0.004;
  state.times.exposed_communication = 0;
  EXPECT_NE(render_line(state).find("  forward 28%, backward 42%, exposed communication 0% of 40%, update 3%  3 min"),
            std::string::npos)
      << render_line(state);
  state.times.communication = 0;
  EXPECT_NE(render_line(state).find("backward 42%, update 3%  3 min"), std::string::npos) << render_line(state);
}

TEST(Progress, BarShowsThePartsOfAStepThatFit) {
  ProgressState state = some_state();
  state.times = some_times();
  const std::string before = "34%  epoch 2/5  step 812/2340  loss 0.4321  acc 85.1%  1234 img/s  68 kB/step  ";
  const std::string after = "3m05s left";
  const std::string parts = "fwd 28%  bwd 42%  comm 17%  compr 1%  upd 3%  data 2%  ";
  EXPECT_EQ(render_bar(state, 144), before + parts + after);
  EXPECT_EQ(render_bar(state, 143), before + parts.substr(0, 46) + after) << "without data";
  EXPECT_EQ(render_bar(state, 118), before + parts.substr(0, 28) + after) << "up to exposed communication";
  EXPECT_EQ(render_bar(state, 100), before + parts.substr(0, 9) + after) << "forward only";
  EXPECT_EQ(render_bar(state, 160), "[====>        ] " + before + parts + after);
}

TEST(Progress, BarFitsEveryWidth) {
  ProgressState odd = some_state();
  odd.loss = NAN;
  odd.seconds_left = INFINITY;
  odd.bytes_inter = 1e300;
  odd.samples_per_s = 1e300;
  odd.times = {.forward = NAN, .backward = INFINITY, .communication = 1e300, .total = 1e-300};
  for (const ProgressState& state : {some_state(), ProgressState{}, odd})
    for (int width = -1; width <= 250; ++width)
      EXPECT_LE(static_cast<int>(render_bar(state, width).size()), std::max(width, 0));
  EXPECT_EQ(render_bar(some_state(), 79),
            "34%  step 812/2340  loss 0.4321  acc 85.1%  1234 img/s  68 kB/step  3m05s left");
}

TEST(Progress, BarKeepsItsFiveMainValuesAt80Columns) {
  ProgressState state{99999, 999999, 99, 100, 12.34567, 1, 12345, 999e3, 1.1e6, 3599};
  EXPECT_EQ(render_bar(state, 79), "loss 12.3457  acc 100.0%  12345 img/s  999 kB intra + 1.1 MB inter  59m59s left");
  EXPECT_EQ(render_bar(state, 30), "loss 12.3457  59m59s left");
  state.bytes_inter = 0;
  EXPECT_EQ(render_bar(state, 79), "9%  loss 12.3457  acc 100.0%  12345 img/s  999 kB/step  59m59s left");
  state.bytes_intra = 0;
  state.seconds_left = 9000;
  EXPECT_EQ(render_bar(state, 79), "[=>           ] 9%  loss 12.3457  acc 100.0%  12345 img/s  0 B/step  2h30m left");
  EXPECT_EQ(render_bar(some_state(), 110),
            "[======>           ] 34%  epoch 2/5  step 812/2340  loss 0.4321  acc 85.1%  1234 img/s  68 kB/step  3m05s "
            "left");
}

TEST(Progress, BarShowsTheFractionDone) {
  ProgressState state = some_state();
  state.step = state.steps;
  EXPECT_EQ(render_bar(state, 200).find("[==============================] 100%"), 0u);
  EXPECT_EQ(render_bar(state, 200).find("left"), std::string::npos);
  state.step = 0;
  EXPECT_EQ(render_bar(state, 200).find("[>                             ] 0%"), 0u);
}

TEST(Progress, LinesAreRareExceptForTheFirstAndTheLast) {
  Output out;
  Progress progress(out.file(), Progress::Style::lines, 1000);
  ProgressState state = some_state();
  for (state.step = 1; state.step <= state.steps; ++state.step) progress.update(state);
  EXPECT_EQ(count(out.text(), "\n"), 2u);
  EXPECT_EQ(count(out.text(), "step 1/2340"), 1u);
  EXPECT_EQ(count(out.text(), "step 2340/2340"), 1u);
  EXPECT_EQ(count(out.text(), "\r") + count(out.text(), "\x1b"), 0u);
}

TEST(Progress, AFileReceivesLines) {
  Output out;
  {
    Progress progress(out.file());
    progress.update(some_state());
  }
  EXPECT_EQ(out.text(), render_line(some_state()) + "\n");
}

TEST(Progress, BarIsRedrawnAtMostTenTimesASecond) {
  Output out;
  const auto start = std::chrono::steady_clock::now();
  {
    Progress progress(out.file(), Progress::Style::bar);
    ProgressState state = some_state();
    for (state.step = 1; state.step < 2000; ++state.step) progress.update(state);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LE(static_cast<double>(count(out.text(), "step ")), 1 + 10 * seconds + 1);
}

TEST(Progress, LinesAreAboveTheBarAndTheBarIsErased) {
  Output out;
  {
    Progress progress(out.file(), Progress::Style::bar);
    progress.line("first");
    progress.update(some_state());
    progress.line("a much shorter line");
    progress.line("and another");
    const std::vector<std::string> lines = on_screen(out.text());
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[0], "first");
    EXPECT_EQ(lines[1], "a much shorter line");
    EXPECT_EQ(lines[2], "and another");
    EXPECT_EQ(lines[3], render_bar(some_state(), 79));
    progress.finish();
    EXPECT_EQ(on_screen(out.text())[3], "");
    progress.update(some_state());
    EXPECT_NE(on_screen(out.text())[3], "");
  }
  EXPECT_EQ(on_screen(out.text())[3], "");
}

TEST(Progress, LinesOfSeveralThreadsAreNotInterleaved) {
  Output out;
  {
    Progress progress(out.file(), Progress::Style::bar);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          progress.update(some_state());
          progress.line("0123456789");
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  const std::vector<std::string> lines = on_screen(out.text());
  ASSERT_EQ(lines.size(), 201u);
  for (size_t i = 0; i < 200; ++i) EXPECT_EQ(lines[i], "0123456789");
}

}  // namespace progress_test
}  // namespace godwit::apps
