#include "apps/report/convolution_notices.h"

#include "engine/check.h"
#include "engine/gpu.h"

namespace godwit::apps {

std::vector<std::string> ConvolutionNotices::fresh() {
  constexpr size_t kShown = 5;
  const ConvolutionPaths& paths = convolution_paths();
  std::vector<std::string> texts;
  for (; plain_ < paths.plain.size(); ++plain_)
    if (plain_ < kShown)
      texts.push_back(
          detail::concat("cuDNN is not used; a much slower plain kernel computes ", paths.plain[plain_],
                         plain_ + 1 == kShown ? "; the end of the run reports how many more there are" : ""));
  if (!by_float32_ && !paths.by_float32.empty()) {
    by_float32_ = true;
    texts.push_back(detail::concat("cuDNN computes in float32 instead of bfloat16, which is slower: ",
                                   paths.by_float32[0], "; the end of the run reports how many there are"));
  }
  if (!rounded_ && !paths.rounded.empty()) {
    rounded_ = true;
    texts.push_back(detail::concat("cuDNN computes a filter gradient in bfloat16, which rounds it to 8 bits: ",
                                   paths.rounded[0], "; the end of the run reports how many there are"));
  }
  if (!damaged_ && !paths.damaged.empty()) {
    damaged_ = true;
    texts.push_back(detail::concat("choices of convolution engines are ignored and made again: ", paths.damaged));
  }
  if (!untimed_ && !paths.untimed.empty()) {
    untimed_ = true;
    texts.push_back(detail::concat("cuDNN's first proposals are used without timing, because choices cannot be kept: ",
                                   paths.untimed));
  }
  return texts;
}

std::vector<std::string> ConvolutionNotices::summary() const {
  const ConvolutionPaths& paths = convolution_paths();
  std::vector<std::string> lines;
  const auto of_all = detail::concat(" of ", paths.operations, " convolution shapes");
  if (!paths.plain.empty())
    lines.push_back(detail::concat(
        "cuDNN was not used for ", paths.plain.size(), of_all,
        " (forward and gradients counted separately), but much slower plain kernels; first: ", paths.plain[0]));
  if (!paths.by_float32.empty())
    lines.push_back(detail::concat("cuDNN computed ", paths.by_float32.size(), of_all,
                                   " in float32 instead of bfloat16, which is slower"));
  if (!paths.rounded.empty())
    lines.push_back(detail::concat("cuDNN computed the filter gradients of ", paths.rounded.size(), of_all,
                                   " in bfloat16, rounded to 8 bits"));
  if (paths.timed > 0)
    lines.push_back(detail::concat("engines were timed for ", paths.timed, of_all, "; later runs use these choices"));
  return lines;
}

}  // namespace godwit::apps
