#pragma once

#include <functional>

namespace lockstep {

// Calls `make_device` on a short-lived thread under SCHED_BATCH, which the event loop that Gloo
// starts there inherits: it keeps its share of the processor but does not push others off it when
// it wakes. That loop tries a pair's lock and, if another thread holds it, asks epoll again at
// once; with more threads than cores it would spin away the time that the holder needs
// (docs/performance.md has the figures). Blocks until done; exceptions come out.
void on_device_thread(const std::function<void()>& make_device);

}  // namespace lockstep
