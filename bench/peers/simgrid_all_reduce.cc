// All-reduces as messages in SimGrid (s4u, network model CM02: latency + bytes / bandwidth, each
// pair of ranks with a link of its own), beside the closed forms and engine L0 of sim/des. Neither
// knows of the other. Exit code 1 where a case is more than 1 % apart.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/des/collective.h"

namespace lockstep {
namespace {

namespace s4u = simgrid::s4u;
using Clock = std::chrono::steady_clock;

constexpr double kAllowed = 0.01;
constexpr size_t kMostRanks = 64;

struct Case {
  std::string name;
  Job job;  // its ranks, cost and links
  int64_t bytes = 0;
  std::vector<int64_t> starts;
};

// What a rank sends and gets in a round, at once.
struct Round {
  int64_t to = 0, from = 0, bytes = 0;
};

void add_ring(int64_t place, int64_t size, int64_t stride, int64_t base, int64_t bytes,
              int64_t times, std::vector<Round>* rounds) {
  const int64_t to = base + (place + 1) % size * stride;
  const int64_t from = base + (place + size - 1) % size * stride;
  for (int64_t i = 0; i < times; ++i) rounds->push_back({to, from, bytes});
}

// Reduce-scatter in the host, a ring across hosts of each part, all-gather in the host.
std::vector<Round> hierarchical_rounds(const Case& one, int64_t rank) {
  const int64_t inside = one.job.cost.ranks_per_host, hosts = one.job.ranks / inside;
  const int64_t place = rank % inside, host = rank / inside, part = one.bytes / inside;
  std::vector<Round> rounds;
  add_ring(place, inside, 1, host * inside, part, inside - 1, &rounds);
  add_ring(host, hosts, inside, place, part / hosts, 2 * (hosts - 1), &rounds);
  add_ring(place, inside, 1, host * inside, part, inside - 1, &rounds);
  return rounds;
}

std::vector<Round> rounds_of(const Case& one, int64_t rank) {
  const int64_t ranks = one.job.ranks;
  std::vector<Round> rounds;
  const auto exchange = [&](int64_t distance, int64_t bytes) {
    rounds.push_back({rank ^ distance, rank ^ distance, bytes});
  };
  switch (one.job.cost.algorithm) {
    case Algorithm::hierarchical:
      return hierarchical_rounds(one, rank);
    case Algorithm::recursive_doubling:
      for (int64_t distance = 1; distance < ranks; distance *= 2) exchange(distance, one.bytes);
      return rounds;
    case Algorithm::halving_doubling:
      for (int64_t distance = 1; distance < ranks; distance *= 2)
        exchange(distance, one.bytes / (2 * distance));
      for (int64_t distance = ranks / 2; distance > 0; distance /= 2)
        exchange(distance, one.bytes / (2 * distance));
      return rounds;
    default:
      add_ring(rank, ranks, 1, 0, one.bytes / ranks, 2 * (ranks - 1), &rounds);
      return rounds;
  }
}

LinkCost link_of(const Case& one, int64_t from, int64_t to) {
  const CostModel& cost = one.job.cost;
  if (!one.job.links.empty()) return one.job.links[static_cast<size_t>(from)];
  const bool across = cost.algorithm == Algorithm::hierarchical &&
                      from / cost.ranks_per_host != to / cost.ranks_per_host;
  return across ? cost.across : cost.link;
}

void build_network(const Case& one, std::vector<s4u::Host*>* hosts) {
  s4u::NetZone* zone = s4u::create_full_zone("all");
  for (int64_t r = 0; r < one.job.ranks; ++r)
    hosts->push_back(zone->create_host(fmt::format("rank-{}", r), 1e9));
  for (int64_t from = 0; from < one.job.ranks; ++from)
    for (int64_t to = 0; to < one.job.ranks; ++to) {
      if (from == to) continue;
      const LinkCost cost = link_of(one, from, to);
      s4u::Link* link = zone->create_link(fmt::format("{}-{}", from, to),
                                          1e15 / static_cast<double>(cost.beta_fs_per_byte));
      link->set_latency(static_cast<double>(cost.alpha_ns) * 1e-9)->seal();
      zone->add_route((*hosts)[static_cast<size_t>(from)]->get_netpoint(),
                      (*hosts)[static_cast<size_t>(to)]->get_netpoint(), nullptr, nullptr,
                      {s4u::LinkInRoute(link)}, false);
    }
  zone->seal();
}

s4u::Mailbox* mailbox(int64_t from, int64_t to) {
  return s4u::Mailbox::by_name(fmt::format("{}-{}", from, to));
}

// A message is on its way as soon as it is sent, whether its receiver waits for it or not.
void run_rank(const Case& one, int64_t rank, const s4u::BarrierPtr& all, double* end_s) {
  const std::vector<Round> rounds = rounds_of(one, rank);
  for (const Round& round : rounds) mailbox(round.from, rank)->set_receiver(s4u::Actor::self());
  all->wait();
  s4u::this_actor::sleep_until(static_cast<double>(one.starts[static_cast<size_t>(rank)]) * 1e-9);
  int token = 0;
  for (const Round& round : rounds) {
    int* got = nullptr;
    const s4u::CommPtr out =
        mailbox(rank, round.to)->put_async(&token, static_cast<uint64_t>(round.bytes));
    const s4u::CommPtr in = mailbox(round.from, rank)->get_async<int>(&got);
    out->wait();
    in->wait();
  }
  *end_s = s4u::Engine::get_clock();
  all->wait();
  for (const Round& round : rounds) mailbox(round.from, rank)->set_receiver(nullptr);
}

using Ends = std::array<double, kMostRanks + 1>;  // seconds by rank; last: what the run took

Ends run_simgrid(const Case& one) {
  const auto begin = Clock::now();
  std::string name = "simgrid", quiet = "--log=root.thres:error";
  std::array<char*, 3> words = {name.data(), quiet.data(), nullptr};
  int count = 2;
  s4u::Engine engine(&count, words.data());
  s4u::Engine::set_config("network/model:CM02");
  for (const char* setting :
       {"network/crosstraffic:0", "network/TCP-gamma:0", "network/latency-factor:1",
        "network/bandwidth-factor:1", "network/weight-S:0"})
    s4u::Engine::set_config(std::string(setting));
  std::vector<s4u::Host*> hosts;
  build_network(one, &hosts);
  Ends ends{};
  const s4u::BarrierPtr all = s4u::Barrier::create(static_cast<unsigned>(one.job.ranks));
  for (int64_t rank = 0; rank < one.job.ranks; ++rank) {
    double* end_s = &ends[static_cast<size_t>(rank)];
    s4u::Actor::create("rank", hosts[static_cast<size_t>(rank)],
                       [&one, rank, all, end_s] { run_rank(one, rank, all, end_s); });
  }
  engine.run();
  ends[kMostRanks] = std::chrono::duration<double>(Clock::now() - begin).count();
  return ends;
}

// In a process of its own: SimGrid has one engine a process.
Ends by_simgrid(const Case& one) {
  std::array<int, 2> ends_pipe{};
  LOCKSTEP_CHECK(pipe(ends_pipe.data()) == 0, "a pipe");
  std::fflush(stdout);  // or the child says it again
  const pid_t child = fork();
  LOCKSTEP_CHECK(child >= 0, "a process");
  if (child == 0) {
    const Ends ends = run_simgrid(one);
    const bool written = write(ends_pipe[1], ends.data(), sizeof(ends)) == sizeof(ends);
    _exit(written ? 0 : 1);
  }
  close(ends_pipe[1]);
  Ends ends{};
  const bool got = read(ends_pipe[0], ends.data(), sizeof(ends)) == sizeof(ends);
  close(ends_pipe[0]);
  int status = 0;
  waitpid(child, &status, 0);
  LOCKSTEP_CHECK(got && status == 0, "SimGrid did not come to its end");
  return ends;
}

Case equal_case(Algorithm algorithm, int64_t ranks, int64_t bytes) {
  Case one{to_word(algorithm), {}, bytes, std::vector<int64_t>(static_cast<size_t>(ranks), 0)};
  one.job.ranks = ranks;
  one.job.cost.algorithm = algorithm;
  one.job.cost.link = {20'000, fs_per_byte_of(1250), 0};
  one.job.cost.across = {50'000, fs_per_byte_of(300), 0};
  if (algorithm == Algorithm::hierarchical) one.job.cost.ranks_per_host = 4;
  return one;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int64_t bytes : {int64_t{4096}, int64_t{1} << 20, int64_t{25} << 20}) {
    for (const int64_t ranks : {2, 3, 4, 6, 7, 16, 64})
      cases.push_back(equal_case(Algorithm::ring, ranks, bytes));
    for (const int64_t ranks : {2, 4, 8, 16, 64})
      for (const Algorithm algorithm : {Algorithm::halving_doubling, Algorithm::recursive_doubling})
        cases.push_back(equal_case(algorithm, ranks, bytes));
    for (const int64_t ranks : {8, 16, 32})
      cases.push_back(equal_case(Algorithm::hierarchical, ranks, bytes));
  }
  for (const int64_t ranks : {3, 7, 16}) {
    Case skewed = equal_case(Algorithm::ring, ranks, 1 << 20);
    skewed.name = "ring, skewed starts";
    for (size_t r = 0; r < skewed.starts.size(); ++r)
      skewed.starts[r] = static_cast<int64_t>(r * 7919 % 17) * 100'000;
    Case unequal = skewed;
    unequal.name = "ring, unequal links";
    for (int64_t r = 0; r < ranks; ++r)
      unequal.job.links.push_back({20'000 + r * 3000, fs_per_byte_of(400.0 + 100.0 * (r % 5)), 0});
    cases.push_back(skewed);
    cases.push_back(unequal);
  }
  return cases;
}

// Of the closed form, and where there are rounds of L0, the last rank's end.
double our_ms(const Case& one, bool by_messages) {
  const std::vector<int64_t> ends = by_messages
                                        ? ends_by_events(one.job, one.starts, one.bytes, nullptr)
                                        : ends_by_formula(one.job, one.starts, one.bytes);
  return static_cast<double>(*std::max_element(ends.begin(), ends.end())) * 1e-6;
}

int compare() {
  fmt::print("{:22} {:>5} {:>10} {:>12} {:>12} {:>12} {:>9}\n", "all-reduce", "ranks", "bytes",
             "SimGrid ms", "formula ms", "L0 ms", "apart %");
  double largest = 0, simgrid_s = 0, ours_s = 0;
  const std::vector<Case> cases = all_cases();
  for (const Case& one : cases) {
    const Ends ends = by_simgrid(one);
    const double theirs = *std::max_element(ends.begin(), ends.end() - 1) * 1e3;
    const auto begin = Clock::now();
    const bool rounds = has_rounds(one.job);
    const double messages = rounds ? our_ms(one, true) : NAN;
    ours_s += std::chrono::duration<double>(Clock::now() - begin).count();
    simgrid_s += rounds ? ends[kMostRanks] : 0;
    const double formula = one.job.links.empty() ? our_ms(one, false) : NAN;
    double apart = 0;
    for (const double ours : {messages, formula})
      if (!std::isnan(ours)) apart = std::max(apart, std::fabs(ours / theirs - 1));
    largest = std::max(largest, apart);
    const auto cell = [](double ms) { return std::isnan(ms) ? "-" : fmt::format("{:.4f}", ms); };
    fmt::print("{:22} {:>5} {:>10} {:>12.4f} {:>12} {:>12} {:>9.4f}\n", one.name, one.job.ranks,
               one.bytes, theirs, cell(formula), cell(messages), apart * 100);
  }
  const bool same = largest <= kAllowed;
  fmt::print("{}: {} all-reduces, at most {:.4f} % apart; SimGrid took {:.2f} s, L0 {:.4f}\n",
             same ? "the same" : "not the same", cases.size(), largest * 100, simgrid_s, ours_s);
  return same ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main() { return lockstep::compare(); }
