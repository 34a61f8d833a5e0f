#include "reducer/comm/device_thread.h"

#include <sched.h>

#include <exception>
#include <thread>

namespace lockstep {

void on_device_thread(const std::function<void()>& make_device) {
  std::exception_ptr error;
  std::thread thread([&] {
    const sched_param no_priority{};
    sched_setscheduler(0, SCHED_BATCH, &no_priority);  // where it is refused, it is only slower
    try {
      make_device();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep
