#include <sys/socket.h>

#include "sim/join/site.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/job.h"

// What rank 0's process tells a member: answers to what it asked, to what it did not ask, and the
// end.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  int ends[2] = {-1, -1};
  fuzz::promised(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "two ends");
  EventLoop loop;
  Link link(loop, Wire(UniqueFd(ends[0])));
  Wire other{UniqueFd(ends[1])};
  int64_t called = 0;
  link.on_reply([&](int64_t, const Link::Message& reply) {
    fuzz::promised(!reply.empty(), "a reply has its number");
    ++called;
  });
  link.when_set("run/0/failure", [&] { ++called; });
  link.forward(3, {"get", "7", "key"}, "run/0/store/");
  for (const Wire::Message& message : fuzz::messages_of(fuzz::text_of(data, size)))
    if (!other.send(message)) break;
  for (int i = 0; i < 3; ++i) loop.wait(std::chrono::milliseconds(0));
  try {
    link.check();
    const auto soon = deadline_after(std::chrono::milliseconds(0));
    int64_t uncertainty = 0;
    (void)link.clock_offset_ns(soon, &uncertainty);
  } catch (const RunOver& over) {
    fuzz::promised(over.code() >= 0 && over.code() <= 255, "an exit code");
  }
  return 0;
}
