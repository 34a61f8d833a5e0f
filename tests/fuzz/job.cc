#include "tests/fuzz/job.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "sim/join/door.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

constexpr const char* kJobKey = "the key of the job";

Credentials credentials() { return {kJobKey, "job"}; }

UniqueFd new_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  promised(fd.valid(), "a socket");
  return fd;
}

sockaddr_un address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  return address;
}

socklen_t length_of(const std::string& name) {
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
}

}  // namespace

Job::Job() {
  static int count = 0;
  name_ = std::string(1, '\0') + folder() + std::to_string(++count);  // in no folder: abstract
  UniqueFd listener = new_socket();
  const sockaddr_un address = address_of(name_);
  promised(
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length_of(name_)) == 0 &&
          ::listen(listener.get(), 16) == 0,
      "a socket that listens");
  coordinator_ = std::make_unique<Coordinator>(
      loop_, std::move(listener), Coordinator::Options{2, credentials(), "about", "", "", {}});
}

UniqueFd Job::connect() {
  UniqueFd fd = new_socket();
  const sockaddr_un address = address_of(name_);
  promised(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length_of(name_)) == 0,
           "a connection");
  return fd;
}

Wire Job::join(int64_t rank) {
  const MemberIdentity member{"", "about", "job", {rank}, "host " + std::to_string(rank), "here"};
  // At idle priority this process may get no time for as long as a stranger's patience lasts, which
  // the coordinator has by the clock: who was not let in for that asks again.
  for (int left = 10;; --left) {
    Joined joined =
        ask_to_join(loop_, Wire(connect()), member, rendezvous_secret(credentials(), ""),
                    deadline_after(std::chrono::minutes(1)));
    if (joined.wire.is_open() || left == 0) return std::move(joined.wire);
  }
}

void Job::begin_run() {
  RunPlan plan;
  plan.scenario.world_size = 2;
  plan.goldens = {"replay"};
  coordinator_->begin_run(0, plan, folder());
}

void Job::turn() {
  for (int i = 0; i < 3; ++i) loop_.wait(std::chrono::milliseconds(0));
}

std::vector<Wire::Message> messages_of(std::string_view text) {
  std::vector<Wire::Message> messages;
  for (const std::string_view line : parts_of(text, "\n", 64)) {
    Wire::Message& message = messages.emplace_back();
    for (const std::string_view field : parts_of(line, "\t", 24)) message.emplace_back(field);
  }
  return messages;
}

}  // namespace lockstep::fuzz
