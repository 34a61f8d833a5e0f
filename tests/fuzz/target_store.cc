#include "sim/join/wire.h"
#include "sim/launch/protocol.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/job.h"

// The rendezvous store: what workers ask of it, by three clients in turn.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  int64_t answers = 0;
  RunStore store([&](int64_t, const Channel::Message& reply) {
    fuzz::promised(reply.size() == 2, "an answer is a number and a value");
    ++answers;
  });
  int64_t client = 0, asked = 0;
  for (const Wire::Message& message : fuzz::messages_of(fuzz::text_of(data, size))) {
    asked += store.handle(client, message) ? 1 : 0;
    (void)store.awaited_by(client);
    client = (client + 1) % 3;
  }
  fuzz::promised(answers <= asked, "nothing is answered that was not asked");
  for (client = 0; client < 3; ++client) store.leave(client);
  fuzz::promised(store.parked() == 0, "who has left waits for nothing");
  (void)parse_host_port(std::string(fuzz::text_of(data, size)));
  return 0;
}
