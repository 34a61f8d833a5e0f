#include "sim/worker/control.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "scenarios/base/check.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

void wait_readable(int fd, Deadline deadline) {
  pollfd p{fd, POLLIN, 0};
  if (::poll(&p, 1, static_cast<int>(time_left(deadline).count())) < 0 && errno != EINTR)
    throw std::system_error(errno, std::generic_category(), "poll of the control socket");
}

}  // namespace

Control::Control(int fd) : channel_(UniqueFd(fd)) {}
Control::~Control() = default;

void Control::send(const Channel::Message& message) {
  // A launcher that takes nothing for this long is stopped, not gone: still nobody to work for.
  if (!channel_.send(message, -1, std::chrono::minutes(1))) ::_exit(kExitOrphan);
}

bool Control::request(Channel::Message message, Deadline deadline, Channel::Message* reply) {
  const std::string id = std::to_string(++last_id_);
  message.insert(message.begin() + 1, id);
  send(message);
  while (true) {
    switch (channel_.receive(reply)) {
      case Channel::Got::closed:
        ::_exit(kExitOrphan);
      case Channel::Got::nothing:
        break;
      case Channel::Got::message:
        LOCKSTEP_CHECK(reply->size() >= 2, "an answer of the launcher without content");
        if (reply->front() == id) return true;
        continue;  // the late answer to a request that was given up
    }
    if (time_left(deadline).count() == 0) {
      send({"drop", id, message.back()});
      return false;
    }
    wait_readable(channel_.fd(), deadline);
  }
}

void Control::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  Channel::Message reply;
  request({"set", key, value}, kNoDeadline, &reply);
}

bool Control::get(const std::string& key, Deadline deadline, std::string* value) {
  const std::lock_guard lock(mutex_);
  Channel::Message reply;
  if (!request({"get", key}, deadline, &reply)) return false;
  *value = std::move(reply[1]);
  return true;
}

int64_t Control::add(const std::string& key, int64_t amount) {
  const std::lock_guard lock(mutex_);
  Channel::Message reply;
  request({"add", key, std::to_string(amount)}, kNoDeadline, &reply);
  return std::strtoll(reply[1].c_str(), nullptr, 10);
}

bool Control::has(const std::string& key) {
  const std::lock_guard lock(mutex_);
  Channel::Message reply;
  request({"has", key}, kNoDeadline, &reply);
  return reply[1] == "1";
}

bool Control::next_run(std::string* plan_text) {
  const std::lock_guard lock(mutex_);
  Channel::Message reply;
  request({"next"}, kNoDeadline, &reply);
  if (reply[1] != "run") return false;
  LOCKSTEP_CHECK(reply.size() == 3, "a run without a plan");
  *plan_text = std::move(reply[2]);
  return true;
}

void Control::run_done(const std::string& evidence) {
  const std::lock_guard lock(mutex_);
  send({"done", evidence});
}

}  // namespace lockstep
