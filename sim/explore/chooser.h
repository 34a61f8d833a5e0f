#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

// Who can act: ranks 0 .. W-1, and W + r, the network of rank r, whose act is to deliver the next
// completion to that rank.
using Actor = int32_t;

// One decision of a schedule. Two decisions in the same place of equal prefixes are equal, since
// nothing but decisions tells two schedules of a scenario apart.
struct Choice {
  uint16_t count = 0;     // alternatives, at least 2
  uint16_t usual = 0;     // the one that is taken where nobody asks for another
  uint16_t taken = 0;     // below count
  bool preempts = false;  // any but the usual one interrupts a rank that could have gone on
};

// Decides. One thread at a time.
class Chooser {
 public:
  virtual ~Chooser() = default;
  // actors: who can act, ascending; choice: filled in but for `taken`, which is the result.
  // `actors` is empty where a part under test asks which of its own alternatives comes next.
  virtual size_t choose(const std::vector<Actor>& actors, const Choice& choice) = 0;
};

// Takes the usual way but at some places: (number of the decision, alternative), ascending. An
// alternative that is not there is the usual one. The empty script is the usual schedule: a rank
// runs until it has to wait.
using Script = std::vector<std::pair<int64_t, uint16_t>>;
class ScriptedChooser : public Chooser {
 public:
  explicit ScriptedChooser(Script script) : script_(std::move(script)) {}
  size_t choose(const std::vector<Actor>& actors, const Choice& choice) override;

 private:
  const Script script_;
  int64_t decision_ = 0;
  size_t next_ = 0;
};
// The script that gives the same choices.
Script script_of(const std::vector<Choice>& choices);
// Of these choices, those that interrupted somebody.
int64_t preemptions_of(const std::vector<Choice>& choices);

// A small generator of our own (splitmix64): the same numbers on every machine.
class ScheduleDraws {
 public:
  explicit ScheduleDraws(uint64_t seed) : state_(seed) {}
  uint64_t next();
  uint64_t below(uint64_t limit) { return next() % limit; }

 private:
  uint64_t state_;
};

// All from one seed. Without `preemptions` half of the seeds draw every decision uniformly, the
// others run whoever has the highest of random priorities and take that priority away at 0 to 3
// points drawn from the schedule, which finds a bug of depth d with a probability of at least
// 1 / (n k^(d-1)) (Burckhardt et al. 2010, n actors, k decisions); with it, all seeds do, at that
// many points. decisions: about how many a schedule has. Used again for each seed: allocates once.
class SeededChooser : public Chooser {
 public:
  SeededChooser(int64_t actors, int64_t decisions, std::optional<int64_t> preemptions);
  void begin(uint64_t seed);
  size_t choose(const std::vector<Actor>& actors, const Choice& choice) override;

 private:
  size_t by_priority(const std::vector<Actor>& actors);

  const int64_t actor_count_;
  const int64_t decisions_;
  const std::optional<int64_t> preemptions_;
  ScheduleDraws draws_{0};
  bool uniform_ = true;
  int64_t decision_ = 0;
  int64_t lowest_ = 0;
  std::vector<int64_t> priority_;  // of actors; high goes first
  std::vector<int64_t> points_;    // decisions at which a priority is lost
};

// Every schedule with at most `preemptions` choices that interrupt somebody, depth first; the usual
// one comes first.
class ExhaustiveChooser : public Chooser {
 public:
  explicit ExhaustiveChooser(int64_t preemptions) : preemptions_(preemptions) {}
  // To the next schedule; false: there is none. Before each but the first.
  bool advance();
  size_t choose(const std::vector<Actor>& actors, const Choice& choice) override;

 private:
  struct Node {
    Choice choice;
    uint16_t tried = 0;  // alternatives, this one included
  };
  int64_t spent(size_t nodes) const;

  const int64_t preemptions_;
  std::vector<Node> path_;
  size_t depth_ = 0;
};

}  // namespace lockstep
