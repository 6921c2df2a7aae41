#include "data/text/squad.h"

#include <optional>
#include <unordered_map>
#include <utility>

#include "data/json_file.h"
#include "engine/check.h"
#include "engine/excerpt.h"

namespace godwit::data {
namespace {

// The byte offset of each code point, and the end.
std::vector<int64_t> code_points(const std::string& text) {
  std::vector<int64_t> begins;
  begins.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<uint8_t>(text[i]) & 0xc0) != 0x80) begins.push_back(static_cast<int64_t>(i));
  begins.push_back(static_cast<int64_t>(text.size()));
  return begins;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path, "a SQuAD file") {}

  Squad read() {
    file_.root().member("data").each([&](const JsonNode& article) {
      article.member("paragraphs").each([&](const JsonNode& paragraph) { add_paragraph(paragraph); });
    });
    check(!squad_.questions.empty(), file_.path(), ": holds no question");
    check(unanswered_ == 0, file_.path(), ": ", unanswered_, " of ", squad_.questions.size(),
          squad_.questions.size() == 1 ? " question has" : " questions have", " no answer, the first is ",
          first_unanswered_,
          "; unanswerable questions (SQuAD 2.0) are not supported yet; use a SQuAD 1.1 file or remove them");
    return std::move(squad_);
  }

 private:
  void add_paragraph(const JsonNode& paragraph) {
    squad_.contexts.push_back(paragraph.member("context").text_not_blank());
    begins_ = code_points(squad_.contexts.back());
    paragraph.member("qas").each([&](const JsonNode& question) { add_question(question); });
  }

  void add_question(const JsonNode& node) {
    SquadQuestion question;
    const JsonNode id = node.member("id");
    question.id = id.text_not_blank();
    const auto [first, is_new] = ids_.emplace(question.id, node.path());
    if (!is_new) fail(id.where(), "\"", excerpt(question.id), "\" is also the id of ", first->second);
    question.text = node.member("question").text_not_blank();
    question.context = squad_.contexts.size() - 1;
    node.member("answers").each([&](const JsonNode& answer) { question.answers.push_back(read_answer(answer)); });
    const std::optional<JsonNode> impossible = node.find("is_impossible");
    if (question.answers.empty() || (impossible && impossible->boolean()))
      if (unanswered_++ == 0) first_unanswered_ = node.path() + " (\"" + excerpt(question.id) + "\")";
    squad_.questions.push_back(std::move(question));
  }

  SquadAnswer read_answer(const JsonNode& node) {
    SquadAnswer answer;
    answer.text = node.member("text").text();
    const int64_t start = node.member("answer_start").integer();
    const std::string& context = squad_.contexts.back();
    const bool inside = start >= 0 && start < static_cast<int64_t>(begins_.size());
    const int64_t begin = inside ? begins_[static_cast<size_t>(start)] : -1;
    if (inside && !answer.text.empty() &&
        context.compare(static_cast<size_t>(begin), answer.text.size(), answer.text) == 0) {
      answer.begin = begin;
    } else {
      squad_.misplaced.push_back(detail::concat(node.path(), ": \"", excerpt(answer.text), "\" is not at character ",
                                                start, " of its context"));
    }
    return answer;
  }

  JsonFile file_;
  Squad squad_;
  std::vector<int64_t> begins_;                       // code points of the last context
  std::unordered_map<std::string, std::string> ids_;  // id → path of the field
  int64_t unanswered_ = 0;
  std::string first_unanswered_;
};

}  // namespace

Squad read_squad(const std::string& path) { return Reader(path).read(); }

}  // namespace godwit::data
