// tools/report: the page of small run directories, read by a parser and drawn by a browser.
#include <cmath>
#include <regex>

#include "tests/apps/programs/train_resnet.h"

namespace godwit {
namespace report_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr, ::testing::Not;

class Report : public TrainResnet {
 protected:
  Outcome report(const std::string& arguments) const {
    const std::string line = "cd '" + folder_.string() + "' && timeout 120 '" GODWIT_SHELL_SOURCE_DIR
                             "/tools/report' " + arguments + " >out 2>err </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder_ / "out"), read_file(folder_ / "err")};
  }
  std::string page(const std::string& name = "report.html") const { return read_file(folder_ / name); }

  // The curves that the script of the page draws.
  static json curves(const std::string& page) {
    const std::string begin = R"(<script type="application/json" id="data">)";
    const size_t at = page.find(begin);
    if (at == std::string::npos) return {};
    return json::parse(page.substr(at + begin.size(), page.find("</script>", at) - at - begin.size()));
  }
  // Texts of the cells behind the row heading `row`, in the section `section` ("": the first such row).
  static std::vector<std::string> cells(const std::string& page, const std::string& section, const std::string& row) {
    const size_t begin = section.empty() ? 0 : page.find("<section id=\"" + section),
                 at = page.find(row + "</th>", begin);
    const std::string text = page.substr(at, page.find("</tr>", at) - at);
    std::vector<std::string> list;
    const std::regex cell("<td>([^<]*)</td>");
    for (std::sregex_iterator i(text.begin(), text.end(), cell), end; i != end; ++i) list.push_back((*i)[1]);
    return list;
  }

  // A run of `steps` steps with a line at step 1 and at each second step, and an evaluation at the end. The parts of a
  // step are those of version 0.1 (`parts` = false) or all parts.
  void write_run(const std::string& name, int steps, const std::string& lr, bool parts) const {
    const fs::path run = folder_ / name;
    write_file(run / "config.json", R"({"model": {"name": "resnet20"}, "optimizer": {"name": "sgdm", "lr": )" + lr +
                                        R"(}, "nodes": 2, "workers_per_node": 1, "log_every": 2})");
    const std::string times =
        parts ? R"("forward_s": 0.02, "backward_s": 0.04, "data_wait_s": 0.001, "exposed_compression_s": 0.002,
                   "exposed_communication_s": 0.03, "exposed_update_s": 0.001, "idle_s": 0.003, "other_s": 0.003,
                   "computation_s": 0.06, "waiting_s": 0.036)"
              : R"("data_wait_s": 0.001, "computation_s": 0.06, "waiting_s": 0.036, "idle_s": 0.003)";
    std::string lines;
    for (int step = 1; step <= steps; step += step == 1 ? 1 : 2) lines += training_line(step, 2.0 / step, times);
    lines += R"({"step": )" + std::to_string(steps) +
             R"(, "epoch": 1, "test_loss": 0.75, "test_top1": 0.625})"
             "\n";
    write_file(run / "metrics.jsonl", lines);
    write_file(run / "summary.json", json{{"steps", steps},
                                          {"parameters", 1000},
                                          {"state", {{{"of", "optimizer"}, {"bytes_of_ranks", {3000, 5000}}}}},
                                          {"phases",
                                           {{{"phase", "dense/all_reduce"},
                                             {"calls", 2 * steps},
                                             {"bytes_intra", 500 * steps},
                                             {"bytes_inter", 2500 * steps},
                                             {"seconds", 0.03 * steps}}}}}
                                         .dump());
  }
  static std::string training_line(int step, double loss, const std::string& times) {
    const std::string value = std::isfinite(loss) ? std::to_string(loss) : "null";
    std::string line = R"({"step": )" + std::to_string(step) + R"(, "epoch": 1, "loss": )" + value +
                       R"(, "lr": 0.1, "samples_per_s": 80, "step_s": 0.1, "bytes_intra": 500, "bytes_inter": 2500, )" +
                       times + "}";
    line.erase(std::remove(line.begin(), line.end(), '\n'), line.end());
    return line + "\n";
  }
};

TEST_F(Report, AClosedPipeGivesNoTraceback) {
  write_run("a", 4, "0.1", true);
  const std::string line =
      "cd '" + folder_.string() + "' && (sleep 0.2; '" GODWIT_SHELL_SOURCE_DIR "/tools/report' a 2>err) | true";
  EXPECT_EQ(std::system(line.c_str()), 0);
  EXPECT_EQ(read_file(folder_ / "err"), "");
  EXPECT_TRUE(fs::exists(folder_ / "a/report.html"));
}

TEST_F(Report, ComparesRuns) {
  write_run("runs/a", 8, "0.1", true);
  write_run("runs/b", 6, "0.2", false);
  const Outcome outcome = report("runs --title 'Two rates'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "report.html\n");
  EXPECT_EQ(outcome.err, "");
  const std::string page = this->page();
  EXPECT_THAT(page, HasSubstr("<h1>Two rates</h1>"));

  const json data = curves(page), loss = data["runs"][0]["curves"]["loss"];
  EXPECT_EQ(data["runs"][1]["name"], "b");
  EXPECT_EQ(loss["step"], json({1, 2, 4, 6, 8}));
  EXPECT_EQ(loss["value"], json({2.0, 1.0, 0.5, 0.333333, 0.25}));
  EXPECT_EQ(loss["seconds"], json({0.1, 0.2, 0.4, 0.6, 0.8}));
  EXPECT_EQ(loss["inter"], json({2500.0, 5000.0, 10000.0, 15000.0, 20000.0}));
  EXPECT_EQ(loss["all"], json({3000.0, 6000.0, 12000.0, 18000.0, 24000.0}));
  EXPECT_EQ(data["runs"][1]["curves"]["test_top1"]["seconds"], json({0.6}));

  using Texts = std::vector<std::string>;
  EXPECT_EQ(cells(page, "summary", "Last training loss"), (Texts{"0.25", "0.3333"}));
  EXPECT_EQ(cells(page, "summary", "Test accuracy, top-1"), (Texts{"62.50 %", "62.50 %"}));
  EXPECT_EQ(cells(page, "summary", "Time of the steps"), (Texts{"800 ms", "600 ms"}));
  EXPECT_EQ(cells(page, "summary", "Sent between nodes, per step"), (Texts{"2.50 kB", "2.50 kB"}));
  EXPECT_EQ(cells(page, "summary", "Optimizer and exchange state of a worker"), (Texts{"4.00 kB", "4.00 kB"}));
  EXPECT_EQ(cells(page, "config", "optimizer.lr"), (Texts{"0.1", "0.2"}));
  EXPECT_THAT(page, HasSubstr("5 keys are equal"));
  EXPECT_EQ(cells(page, "summary", "Samples per second (language models: tokens)"), (Texts{"80", "80"}));
  EXPECT_THAT(page, HasSubstr("href=\"./runs/b/config.json\""));
  EXPECT_EQ(cells(page, "bytes", "dense/all_reduce"), (Texts{"2", "2.50 kB", "500 B", "30.0 ms"}));
}

// Columns: forward, backward, forward + backward, data, compression, communication, update, exchange, idle, other,
// step.
TEST_F(Report, PartsAddUpToTheStep) {
  write_run("runs/new", 8, "0.1", true);
  write_run("runs/old", 6, "0.2", false);
  ASSERT_EQ(report("runs").exit_code, 0);
  const std::string page = this->page(), figures = page.substr(page.find("ms per step"));
  using Texts = std::vector<std::string>;
  EXPECT_EQ(cells(figures, "", " new"),
            (Texts{"20.00", "40.00", "–", "1.00", "2.00", "30.00", "1.00", "–", "3.00", "3.00", "100.00"}));
  EXPECT_EQ(cells(figures, "", " old"),
            (Texts{"–", "–", "60.00", "1.00", "–", "–", "–", "33.00", "3.00", "3.00", "100.00"}));
}

// A run of the program itself: every key that the page needs is there.
TEST_F(Report, ReadsARunOfTheProgram) {
  ASSERT_EQ(train("--optimizer birder --nodes 2 --batch 8 --set log_every=1 --set clip.norm=1").exit_code, 0);
  const Outcome outcome = report("run");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "run/report.html\n");
  const std::string page = this->page("run/report.html");
  const auto lines = metrics();
  const json curves = Report::curves(page)["runs"][0]["curves"];
  ASSERT_EQ(curves["loss"]["value"].size(), 4u);
  EXPECT_NEAR(curves["loss"]["value"][3], lines[3]["loss"], 1e-5);
  EXPECT_EQ(curves["test_top1"]["value"].size(), 1u);
  EXPECT_EQ(curves["grad_norm"]["step"], json({1, 2, 3, 4}));
  double seconds = 0;
  for (int i = 0; i < 4; ++i) seconds += lines[i]["step_s"].get<double>();
  EXPECT_NEAR(curves["loss"]["seconds"][3], seconds, 1e-5 * seconds);
  for (const char* section : {"summary", "curves", "time", "bytes", "config"})
    EXPECT_THAT(page, HasSubstr(std::string("<section id=\"") + section)) << section;
  const auto parts = cells(page.substr(page.find("ms per step")), "", " run");
  ASSERT_GE(parts.size(), 5u);
  double sum = 0;
  for (size_t i = 0; i + 1 < parts.size(); ++i) sum += parts[i] == "–" ? 0 : std::stod(parts[i]);
  EXPECT_NEAR(sum, std::stod(parts.back()), 0.01 * std::stod(parts.back()) + 0.05);
  EXPECT_THAT(page, Not(HasSubstr("exceed the step")));
}

TEST_F(Report, EscapesTexts) {
  const std::string hostile = "<script>alert(1)<&\"'";
  write_run("runs/" + hostile, 4, "0.1", true);
  write_run("runs/b", 4, "0.1", true);
  write_file(folder_ / "runs/b/metrics.jsonl",
             "{\"step\": 4, \"</script><u>\": 1}\n" + training_line(5, 1, "\"</td>\": 1"));
  const Outcome outcome = report("runs --title '</title><script>'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string page = this->page();
  const auto count = [&](const std::string& text) {
    size_t n = 0;
    for (size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("<script"), 2u);
  EXPECT_EQ(count("</script"), 2u);
  EXPECT_EQ(count("<img"), 0u);
  EXPECT_EQ(count("<u>"), 0u);
  EXPECT_EQ(count("&lt;/title&gt;&lt;script&gt;"), 2u);  // the title and the heading
  EXPECT_EQ(curves(page)["runs"][0]["name"], hostile);
  EXPECT_TRUE(curves(page)["runs"][1]["curves"].contains("</script><u>"));
}

TEST_F(Report, NamesRunsThatCannotBeRead) {
  write_run("good", 4, "0.1", true);
  fs::create_directories(folder_ / "empty");
  write_file(folder_ / "file", "text");
  write_file(folder_ / "bare/config.json", "{}");
  write_file(folder_ / "fresh/metrics.jsonl", "");
  write_file(folder_ / "strange/metrics.jsonl", "[1, 2]\nnothing\n{\"loss\": 1}\n");
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"empty", "report: empty: contains no run; expected a folder with metrics.jsonl, or a folder of such folders\n"},
      {"file", "report: file: is a file; expected the folder of a run\n"},
      {"absent", "report: absent: does not exist; expected the folder of a run\n"},
      {"bare", "report: bare: has no metrics.jsonl; expected the folder of a run\n"},
      {"fresh", "report: fresh/metrics.jsonl: has no metrics yet\n"},
      {"strange", "report: strange/metrics.jsonl: has no metrics that can be read\n"}};
  std::string all, messages;
  for (const auto& [name, message] : bad) {
    const Outcome outcome = report(name);
    EXPECT_EQ(outcome.exit_code, 1) << name;
    EXPECT_EQ(outcome.err, message + "report: no run can be read; no page is written\n");
    EXPECT_EQ(outcome.out, "");
    all += name + " ";
    messages += message;
  }
  EXPECT_FALSE(fs::exists(folder_ / "report.html"));
  const Outcome outcome = report(all + "good good --output page.html");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, messages);
  EXPECT_EQ(outcome.out, "page.html\n");
  EXPECT_EQ(curves(page("page.html"))["runs"].size(), 1u);
  EXPECT_NE(page("page.html").find("absent: does not exist"), std::string::npos);
}

TEST_F(Report, RefusesWrongCommands) {
  write_run("good", 4, "0.1", true);
  Outcome outcome = report("good --output absent/page.html");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err,
            "report: absent/page.html: cannot be written (No such file or directory); use --output FILE\n");
  EXPECT_EQ(report("").exit_code, 2);
  EXPECT_EQ(report("good --format pdf").exit_code, 2);
  outcome = report("--help");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("tools/report runs/a runs/b"));
}

// Non-finite losses, steps that were written again, an interrupt, and a line that was not written to its end.
TEST_F(Report, StatesDefectsOfARun) {
  const std::string none = "\"x\": 0";
  std::string lines;
  for (int step : {1, 2, 4, 6, 4}) lines += training_line(step, step == 2 ? NAN : step, none);
  write_file(folder_ / "run/metrics.jsonl", lines + R"({"step": 4, "epoch": 1, "interrupted": true})"
                                                    "\n{\"step\": 6, \"lo");
  write_file(folder_ / "run/config.json", "{\"optimizer\": ");
  const Outcome outcome = report("run --output report.html");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string page = this->page();
  for (const char* note : {"config.json is not a JSON object", "summary.json is missing",
                           "The last line of metrics.jsonl is truncated", "Interrupted at step 4",
                           "Steps from 4 were repeated", "Values of loss that are not finite: 1 of 3, first at step 2"})
    EXPECT_THAT(page, HasSubstr(note)) << note;
  const json loss = curves(page)["runs"][0]["curves"]["loss"];
  EXPECT_EQ(loss["step"], json({1, 2, 4}));
  EXPECT_EQ(loss["value"], json({1.0, nullptr, 4.0}));
  EXPECT_EQ(loss["seconds"], json({0.1, 0.2, 0.4}));
  // The repeated step 20 counts ten steps, also behind an evaluation at step 12.
  lines.clear();
  for (int step : {1, 10, 12, 20, 30, 20, 30})
    lines += step == 12 ? "{\"step\": 12, \"epoch\": 1, \"test_loss\": 1}\n" : training_line(step, 1, none);
  write_file(folder_ / "run/metrics.jsonl", lines);
  ASSERT_EQ(report("run --output report.html").exit_code, 0);
  EXPECT_EQ(curves(this->page())["runs"][0]["curves"]["loss"]["seconds"], json({0.1, 1.0, 2.0, 3.0}));
  // A run that was resumed in another folder counts from its first line.
  write_file(folder_ / "rest/config.json", "{\"log_every\": 2}");
  write_file(folder_ / "rest/metrics.jsonl", training_line(102, 1, none) + training_line(104, 1, none));
  ASSERT_EQ(report("rest --output report.html").exit_code, 0);
  EXPECT_NE(this->page().find("metrics.jsonl begins at step 102"), std::string::npos);
  EXPECT_EQ(curves(this->page())["runs"][0]["curves"]["loss"]["seconds"], json({0.2, 0.4}));
}

TEST_F(Report, NamesTheNetworkOfAuto) {
  using Texts = std::vector<std::string>;
  for (const auto& [model, name] :
       {std::pair<std::string, std::string>{R"({"name": "auto", "n_layer": 4}, "init_weights": "")", "gpt2_nano"},
        {R"({"name": "auto", "dropout": []}, "init_weights": "")", "bert_mini"},
        {R"({"name": "auto", "n_layer": 4}, "init_weights": "/models/gpt2")", "gpt2 (initial weights)"}}) {
    write_run("run", 4, "0.1", true);
    write_file(folder_ / "run/config.json", "{\"model\": " + model + "}");
    ASSERT_EQ(report("run --output report.html").exit_code, 0);
    EXPECT_EQ(cells(page(), "summary", "Model"), Texts{name});
  }
}

TEST_F(Report, IgnoresTimesThatOverflow) {
  write_run("runs/good", 4, "0.1", true);
  const std::string huge = R"(, "epoch": 1, "loss": 1, "lr": 0.1, "step_s": 1e308, "bytes_intra": 1e308, )"
                           R"("bytes_inter": 1e308})";
  write_file(folder_ / "runs/huge/metrics.jsonl", R"({"step": 1)" + huge + "\n" + R"({"step": 20)" + huge + "\n");
  const Outcome outcome = report("runs");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(cells(page(), "summary", "Time of the steps"), (std::vector<std::string>{"400 ms", "–"}));
  EXPECT_NE(page().find("Training lines without step_s: the time axis is incomplete."), std::string::npos);
}

TEST_F(Report, KeepsExtremesOfLongCurves) {
  std::string lines;
  for (int step = 1; step <= 5000; ++step) {
    const bool lost = step > 2000 && step <= 2100;
    const double loss = step == 1234 ? 9 : step == 4321 ? 0.125 : lost ? NAN : 1 + step % 2;
    lines += training_line(step, loss, "\"x\": 0");
  }
  write_file(folder_ / "long/metrics.jsonl", lines);
  ASSERT_EQ(report("long").exit_code, 0);
  const std::string page = this->page("long/report.html");
  EXPECT_THAT(page, HasSubstr("Curves show 1000 of 5000 points"));
  const json loss = curves(page)["runs"][0]["curves"]["loss"];
  EXPECT_LE(loss["value"].size(), 1002u);
  ASSERT_EQ(loss["step"].size(), loss["value"].size());
  EXPECT_EQ(loss["step"].front(), 1);
  EXPECT_EQ(loss["step"].back(), 5000);
  for (const auto& [step, value] : {std::pair{1234, 9.0}, {4321, 0.125}}) {
    const auto at = std::find(loss["step"].begin(), loss["step"].end(), step) - loss["step"].begin();
    ASSERT_LT(at, std::ssize(loss["step"])) << step;
    EXPECT_EQ(loss["value"][static_cast<size_t>(at)], value);
  }
  EXPECT_NEAR(loss["mean"][0], 1.5, 1e-6);
  EXPECT_NEAR(loss["mean"][600], 1.5, 1e-6);
  EXPECT_EQ(std::count(loss["value"].begin(), loss["value"].end(), json()), 10);  // a gap in the curve
}

// A browser draws each curve with all of its points and reports no error of the script.
TEST_F(Report, DrawsInABrowser) {
  if (std::system("command -v chromium >/dev/null") != 0) GTEST_SKIP() << "chromium is not installed";
  write_run("runs/a", 80, "0.1", true);
  write_run("runs/b", 60, "0.2", false);
  ASSERT_EQ(report("runs").exit_code, 0);
  const std::string line = "cd '" + folder_.string() +
                           "' && HOME=$PWD timeout 100 chromium --headless --no-sandbox --disable-gpu"
                           " --user-data-dir=\"$PWD/profile\" --enable-logging=stderr --virtual-time-budget=2000"
                           " --dump-dom \"file://$PWD/report.html\" >dom 2>browser_err </dev/null";
  ASSERT_EQ(std::system(line.c_str()), 0) << read_file(folder_ / "browser_err");
  const std::string dom = read_file(folder_ / "dom"), errors = read_file(folder_ / "browser_err");
  EXPECT_THAT(errors, Not(HasSubstr("CONSOLE")));
  const auto points = [&](const std::string& key) {
    const size_t at = dom.find("data-key=\"" + key + "\""), end = dom.find("</figure>", at);
    std::vector<int64_t> counts;
    const std::string chart = at == std::string::npos ? "" : dom.substr(at, end - at);
    const std::regex curve("class=\"curve\" d=\"([^\"]*)\"");
    for (std::sregex_iterator i(chart.begin(), chart.end(), curve), last; i != last; ++i) {
      const std::string d = (*i)[1];
      counts.push_back(std::count_if(d.begin(), d.end(), [](char c) { return c == 'M' || c == 'L'; }));
    }
    return counts;
  };
  EXPECT_EQ(points("loss"), (std::vector<int64_t>{41, 31}));
  EXPECT_EQ(points("test_top1"), (std::vector<int64_t>{1, 1}));
}

}  // namespace report_test
}  // namespace godwit
