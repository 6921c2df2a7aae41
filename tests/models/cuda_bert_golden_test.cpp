// The golden files of BERT on a GPU.
#include "tests/models/bert_golden.h"
#include "tests/models/image_golden.h"

namespace godwit {
namespace cuda_bert_golden_test {

class CudaBertGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << why_no_cuda();
  }
};

TEST_F(CudaBertGolden, BertFloat32) {
  bert_golden::expect_golden_on<BertForPreTraining>("cuda:0", DType::f32);
  bert_golden::expect_golden_on<BertForQuestionAnswering>("cuda:0", DType::f32);
  bert_golden::expect_golden_on<BertForSequenceClassification>("cuda:0", DType::f32);
}

TEST_F(CudaBertGolden, BertBfloat16StaysNearFloat64) {
  bert_golden::on_rank("cuda:0", bert_golden::expect_bfloat16_near_float64);
}

}  // namespace cuda_bert_golden_test
}  // namespace godwit
