// Pass: which part of a training step the calling thread computes.
#pragma once

namespace godwit {

// recompute: backward() calls the function of recompute() again.
enum class Pass { forward, backward, recompute };

Pass current_pass();

}  // namespace godwit
