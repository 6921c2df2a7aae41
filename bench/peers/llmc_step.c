/* Times training steps of llm.c's GPT-2 on the weights and tokens of bench_gpt2_step. bench/peers/build_llmc builds it.
     llmc_step CHECKPOINT BATCH LENGTH STEPS [LOSSES]
   CHECKPOINT: from bench/peers/llmc_checkpoint.py. LOSSES: expected losses of the first steps, one per line. One step
   is not timed. */
#define TESTING
#include "train_gpt2.c"

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int token(uint64_t i) { return (int)((uint64_t)(uint32_t)(i * 2654435761U) * 50257 >> 32); }

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: llmc_step CHECKPOINT BATCH LENGTH STEPS [LOSSES]\n");
    return 2;
  }
  const int batch = atoi(argv[2]), length = atoi(argv[3]), steps = atoi(argv[4]);
  FILE* losses = argc > 5 ? fopenCheck(argv[5], "r") : NULL;
  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);
  int* text = (int*)mallocCheck((size_t)(batch * length + 1) * sizeof(int));
  for (int i = 0; i <= batch * length; ++i) text[i] = token((uint64_t)i);
  double* seconds = (double*)mallocCheck((size_t)(steps + 1) * sizeof(double));
  for (int step = 0; step <= steps; ++step) {
    const double start = now();
    gpt2_forward(&model, text, text + 1, (size_t)batch, (size_t)length);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 1e-4f, step + 1);
    seconds[step] = now() - start;
    printf("  step %d: %.4f s, loss %.6f\n", step, seconds[step], model.mean_loss);
    fflush(stdout);
    double expected;
    if (losses && fscanf(losses, "%lf", &expected) == 1 && !(fabs(model.mean_loss - expected) <= 1e-4 * expected)) {
      fprintf(stderr, "llmc_step: the loss of step %d is %f; expected %f\n", step, model.mean_loss, expected);
      return 1;
    }
  }
  qsort(seconds + 1, (size_t)steps, sizeof(double), by_size);
  printf("llm.c gpt2 f32 batch %d, %d tokens\n  %.4f s/step\n", batch, length,
         (seconds[1 + (steps - 1) / 2] + seconds[1 + steps / 2]) / 2);
  return 0;
}
