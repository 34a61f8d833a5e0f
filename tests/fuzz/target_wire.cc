#include <sys/socket.h>

#include "sim/join/wire.h"
#include "tests/fuzz/fuzz.h"

// Bytes on a connection of a job, from somebody who has proved nothing, in pieces of any size.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  int ends[2] = {-1, -1};
  fuzz::promised(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "two ends");
  Wire wire{UniqueFd(ends[0])};
  const UniqueFd other(ends[1]);
  Wire::Message message;
  Channel::Got got = Channel::Got::nothing;
  const size_t piece = size == 0 ? 1 : 1 + data[size - 1] * 256U;
  for (size_t at = 0; at < size && got != Channel::Got::closed; at += piece) {
    (void)!::send(other.get(), data + at, std::min(piece, size - at), MSG_NOSIGNAL | MSG_DONTWAIT);
    while ((got = wire.receive(&message)) == Channel::Got::message) {
      size_t bytes = 0;
      for (const std::string& field : message) bytes += field.size();
      fuzz::promised(!message.empty() && message.size() <= Wire::kFieldsMax, "so many fields");
      fuzz::promised(bytes <= Wire::kStrangerBytesMax, "a stranger says little");
    }
  }
  return 0;
}
