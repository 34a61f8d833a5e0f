#include "sim/join/site.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "sim/join/coordinator.h"
#include "sim/join/wire.h"
#include "sim/launch/run_files.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLinkWait{50};
constexpr int kClockSamples = 8;

int64_t parsed_number(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

}  // namespace

Link::Link(EventLoop& loop, Wire wire) : loop_(loop), wire_(std::move(wire)) {
  loop_.watch(wire_.fd(), [this] { on_readable(); });
}

Link::~Link() { loop_.forget(wire_.fd()); }

void Link::note_over(int code, const std::string& why) {
  if (over_) return;
  over_ = true;
  over_code_ = code;
  over_why_ = why;
  loop_.forget(wire_.fd());
}

void Link::check() const {
  if (over_) throw RunOver(over_code_, over_why_);
}

void Link::on_readable() {
  Message message;
  flush();
  while (!over_) {
    switch (wire_.receive(&message)) {
      case Channel::Got::nothing:
        return;
      case Channel::Got::closed:
        return note_over(kExitLostCoordinator, "the process of rank 0 is gone: nothing was judged");
      case Channel::Got::message:
        on_message(message);
    }
  }
}

void Link::on_message(const Message& message) {
  if (message.size() == 3 && message[0] == "over")
    return note_over(static_cast<int>(std::clamp<int64_t>(parsed_number(message[1]), 0, 255)),
                     message[2]);
  const std::string& id = message[0];
  if (const auto awaited = answers_.find(id); awaited != answers_.end()) {
    awaited->second = Message(message.begin() + 1, message.end());
  } else if (const auto call = callbacks_.find(id); call != callbacks_.end()) {
    const auto then = std::move(call->second);
    callbacks_.erase(call);
    then();
  } else if (const size_t colon = id.find(':'); id.starts_with('c') && colon != id.npos) {
    Message reply = message;
    reply[0] = id.substr(colon + 1);
    if (on_reply_) on_reply_(parsed_number(id.substr(1, colon - 1)), reply);
  }
}

// What is not taken now goes out from the loop.
void Link::pass(const Message& message) {
  if (over_) return;
  wire_.send(message);
  flush();
}

void Link::flush() {
  if (!wire_.flush()) return note_over(kExitLostCoordinator, "the process of rank 0 takes nothing");
  loop_.watch_writable(wire_.fd(), wire_.has_unsent());
}

std::string Link::send(Message message) {
  std::string id = "m" + std::to_string(++last_id_);
  message.insert(message.begin() + 1, id);
  pass(message);
  return id;
}

Link::Message Link::request(Message message, Deadline deadline) {
  const std::string what = message.front() + (message.size() > 1 ? " " + message[1] : "");
  check();
  const std::string id = send(std::move(message));
  answers_[id];
  while (answers_[id].empty()) {
    check();
    if (time_left(deadline).count() == 0) {
      answers_.erase(id);
      throw RunOver(kExitLostCoordinator, "no answer to \"" + what.substr(0, 80) + "\" in time");
    }
    loop_.wait(std::min(kLinkWait, time_left(deadline)));
  }
  Message answer = std::move(answers_[id]);
  answers_.erase(id);
  return answer;
}

std::string Link::get(const std::string& key, Deadline deadline) {
  return request({"get", key}, deadline).front();
}

void Link::set(const std::string& key, const std::string& value, Deadline deadline) {
  request({"set", key, value}, deadline);
}

void Link::when_set(const std::string& key, std::function<void()> then) {
  callbacks_[send({"get", key})] = std::move(then);
}

void Link::forward(int64_t client, const Message& message, const std::string& prefix) {
  if (message.size() < 3 || over_) return;
  Message tagged = message;
  tagged[1] = "c" + std::to_string(client) + ":" + message[1];
  tagged[2] = prefix + message[2];
  pass(tagged);
}

std::string Link::own_address() const { return lockstep::own_address(wire_.fd()); }

int64_t Link::clock_offset_ns(Deadline deadline, int64_t* uncertainty_ns) {
  int64_t offset = 0;
  *uncertainty_ns = std::numeric_limits<int64_t>::max();
  for (int sample = 0; sample < kClockSamples; ++sample) {
    const int64_t before = now_ns();
    const int64_t theirs = parsed_number(request({"clock"}, deadline).front());
    const int64_t after = now_ns();
    if ((after - before) / 2 >= *uncertainty_ns) continue;
    *uncertainty_ns = (after - before) / 2;
    offset = theirs - (before + after) / 2;
  }
  return offset;
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSiteWait{50};
constexpr milliseconds kHandIn{60'000};
constexpr size_t kSiteFilePieceBytes = 1 << 20;

int failure_code(const ProcessEnd& end) {
  if (end.by_launcher || end.rank < 0) return 0;
  return end.signal != 0 ? 128 + end.signal : end.exit_code;
}

// A record file's head says how its clock differs from the coordinator's.
void put_clock(std::string* records, int64_t offset_ns, int64_t uncertainty_ns) {
  if (records->size() < sizeof(RecordHeader)) return;
  std::memcpy(records->data() + offsetof(RecordHeader, clock_offset_ns), &offset_ns, 8);
  std::memcpy(records->data() + offsetof(RecordHeader, clock_uncertainty_ns), &uncertainty_ns, 8);
}

// Of host_key(): its machine and network namespace.
std::string network_of(const std::string& host) {
  const size_t machine = host.find(' ');
  return host.substr(0, machine == host.npos ? host.npos : host.find(' ', machine + 1));
}

}  // namespace

Topology topology_of(const std::string& hosts, const std::vector<int64_t>& ranks) {
  const auto members = decode_members(hosts);
  std::string own_host, first_host;
  for (const MemberIdentity& member : members.value_or(std::vector<MemberIdentity>()))
    for (const int64_t rank : member.ranks) {
      if (rank == ranks.front()) own_host = member.host;
      if (rank == 0) first_host = member.host;
    }
  if (own_host.empty() || first_host.empty())
    throw RunOver(kExitLostCoordinator, "rank 0 has sent no list of all members");
  Topology topology;
  topology.ranks = ranks;
  for (const MemberIdentity& member : *members) {
    topology.one_host = topology.one_host && member.host == own_host;
    topology.one_network = topology.one_network && network_of(member.host) == network_of(own_host);
    if (member.host != own_host) continue;
    topology.host_ranks.insert(topology.host_ranks.end(), member.ranks.begin(), member.ranks.end());
  }
  std::sort(topology.host_ranks.begin(), topology.host_ranks.end());
  topology.host_leader = topology.host_ranks.front();
  topology.leads_host = std::find(ranks.begin(), ranks.end(), topology.host_leader) != ranks.end();
  topology.collects = own_host == first_host;
  return topology;
}

Site::Site(EventLoop& loop, Link& link, Options options)
    : loop_(loop), link_(link), options_(std::move(options)) {}

Site::~Site() {
  for (const std::string& dir : to_remove_) remove_dir(dir);
}

// The leader makes it, the others of this host wait until the plan is in it.
std::string Site::find_run_dir(int64_t number, Deadline deadline) {
  if (!options_.topology.leads_host)
    return link_.get(fmt::format("run/{}/dir/{}", number, options_.topology.host_leader), deadline);
  std::string dir = run_dir_of(options_.out_dir, static_cast<size_t>(number));
  make_dir(dir);
  return dir;
}

void Site::run(int64_t number, const RunPlan& plan) {
  const Topology& topology = options_.topology;
  const Timeouts& timeouts = plan.scenario.timeouts;
  const Deadline begin = deadline_after(milliseconds(timeouts.rendezvous_ms));
  link_.get(fmt::format("run/{}/go", number), begin);
  const std::string dir = find_run_dir(number, begin);
  if (topology.leads_host && !topology.collects) to_remove_.push_back(dir);
  const size_t processes = topology.ranks.size() + (topology.leads_host ? plan.goldens.size() : 0);
  // A zygote is worth its own start for several processes only.
  Workers workers(loop_, {options_.worker_program, options_.out_dir, processes == 1});
  RunPart part;
  part.ranks = topology.ranks;
  part.goldens = topology.leads_host;
  part.rounding = topology.ranks.front() == 0;
  part.address = options_.address;
  if (!topology.one_host) part.host_ranks = topology.host_ranks;
  const std::string prefix = fmt::format("run/{}/store/", number);
  part.store = [&](int64_t client, const Channel::Message& message) {
    link_.forward(client, message, prefix);
  };
  ProcessRun run(workers, plan, dir, part);
  link_.on_reply([&](int64_t client, const Link::Message& reply) { run.reply(client, reply); });
  try {
    drive(run, workers, number);
  } catch (...) {
    link_.on_reply({});
    throw;
  }
  link_.on_reply({});
  const Deadline deadline = deadline_after(kHandIn);
  hand_in_files(dir, number, deadline);
  link_.request({"done", std::to_string(number)}, deadline);
}

void Site::drive(ProcessRun& run, Workers& workers, int64_t number) {
  failed_elsewhere_ = false;
  link_.when_set(fmt::format("run/{}/failure", number), [this] { failed_elsewhere_ = true; });
  if (options_.topology.leads_host)
    link_.set(fmt::format("run/{}/dir/{}", number, options_.topology.host_leader),
              run_dir_of(options_.out_dir, static_cast<size_t>(number)), deadline_after(kHandIn));
  told_.clear();
  while (true) {
    run.advance(Clock::now());
    if (run.ends().size() > told_.size()) hand_in_ends(run, number, deadline_after(kHandIn));
    if (run.over()) return;
    link_.check();
    if (failed_elsewhere_) run.note_failure_elsewhere(Clock::now());
    loop_.wait(kSiteWait);
    workers.tick(Clock::now());
    workers.check();
  }
}

void Site::hand_in_ends(const ProcessRun& run, int64_t number, Deadline deadline) {
  const std::string number_text = std::to_string(number);
  if (told_.empty() && !run.golden_problem().empty())
    link_.request({"golden_problem", number_text, run.golden_problem()}, deadline);
  // A copy: they may become more while an answer is awaited.
  const std::vector<ProcessEnd> ends(run.ends().begin(), run.ends().end());
  for (const ProcessEnd& end : ends) {
    if (!told_.insert(end.who).second) continue;
    if (own_failure_ == 0) own_failure_ = failure_code(end);
    link_.request({"end", number_text, encode(end)}, deadline);
  }
}

void Site::hand_in_files(const std::string& run_dir, int64_t number, Deadline deadline) {
  if (options_.topology.collects) return;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir, error)) {
    const std::string name = entry.path().filename().string();
    for (const int64_t rank : options_.topology.ranks)
      if (entry.is_regular_file(error) && is_rank_file(name, rank))
        hand_in_file(entry.path().string(), number, deadline);
  }
}

void Site::hand_in_file(const std::string& path, int64_t number, Deadline deadline) {
  const std::string name = std::filesystem::path(path).filename().string();
  std::string bytes = read_file(path);
  if (name.ends_with(".records")) {
    int64_t uncertainty_ns = 0;
    const int64_t offset_ns = link_.clock_offset_ns(deadline, &uncertainty_ns);
    put_clock(&bytes, offset_ns, uncertainty_ns);
  }
  for (size_t at = 0; at < bytes.size(); at += kSiteFilePieceBytes)
    link_.request({"file", std::to_string(number), name, bytes.substr(at, kSiteFilePieceBytes)},
                  deadline);
}

}  // namespace lockstep
