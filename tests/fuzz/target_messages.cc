#include "sim/join/door.h"
#include "sim/join/site.h"
#include "sim/launch/protocol.h"
#include "sim/record/evidence.h"
#include "tests/fuzz/fuzz.h"

// Texts within messages: who a member is, all members and so the topology, an end, a worker's task.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  const std::string text(fuzz::text_of(data, size));
  if (const auto member = decode_member(text)) {
    fuzz::promised(!member->ranks.empty(), "a member has ranks");
    fuzz::promised(decode_member(encode(*member)).has_value(), "a member stays one");
  }
  if (const auto end = decode_end(text)) {
    fuzz::promised(end->rank >= -1, "an end of a rank or of a golden run");
    fuzz::promised(decode_end(encode(*end)).has_value(), "an end stays one");
  }
  if (const auto members = decode_members("[" + text + "]"))
    fuzz::promised(decode_members(encode(*members)).has_value(), "members stay some");
  try {
    const Topology topology = topology_of(text, {1});  // of members too
    fuzz::promised(!topology.host_ranks.empty(), "a host has ranks");
  } catch (const RunOver&) {
  }
  if (const auto task = decode_task(text)) (void)process_name(*task);
  fuzz::promised(plain_ascii(text).size() <= 310, "what is printed of a stranger is short");
  return 0;
}
