// Detects races between threads of a kernel and between streams, byte by byte. Two accesses are a race if one of them
// writes, unless both are atomic or one has happened before the other. This order comes from a barrier of the block or
// the grid, __syncwarp() within a warp, a stream, an event, or a wait of the host. Exchanges between lanes order
// nothing.
//
// The kernels are compiled with -fsanitize=thread, and this detector implements the functions that their accesses call.
// It checks items that streams.cpp runs while GODWIT_EMULATED_STREAMS defers work. A race ends the process with a
// message that names both accesses and the host's calls that queued them. Of many concurrent reads of one byte, three
// are remembered.
#pragma once
#include <functional>
#include <string>

#include "streams.h"

namespace emulated {

inline std::function<void(const std::string&)> on_race;  // for tests: called instead of ending the process

void watch(void* data, size_t bytes);  // checks accesses to this device memory until unwatch()
void unwatch(void* data);
// States that the calling thread runs an item of a stream, after all items in `clock`. The element `stream` of `clock`
// is the item's position.
void begin_item(const Item& item, unsigned stream, const Clock& clock);
void end_item();
// A thread of a kernel, and the numbers of barriers that it has passed. A barrier of the grid also counts as one of the
// block.
struct KernelThread {
  unsigned block, thread, grid_barriers, block_barriers, warp_barriers;
};
void begin_thread(const KernelThread& thread);     // states that the calling thread continues this thread of a kernel
void set_stacks(const void* begin, size_t bytes);  // the detector ignores the stacks of the calling thread's fibers
// An access of the running item.
void note_read(const void* at, size_t bytes);
void note_write(const void* at, size_t bytes);

}  // namespace emulated
