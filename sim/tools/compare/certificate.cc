#include "sim/tools/compare/certificate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "scenarios/base/same_bits.h"

namespace lockstep {
namespace {

using Tensors = std::map<std::string, LoggedGradient>;

const LoggedGradient* find(const Tensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

bool same_shape(const LoggedGradient& a, const LoggedGradient& b) {
  return a.type == b.type && a.elements == b.elements;
}

// Throws Certifier::Decided once it knows how the comparison ends.
class Certifier {
 public:
  struct Decided {};
  Certifier(const GradientLog& a, const GradientLog& b) : a_(a), b_(b) {
    found_.world = a.world;
    found_.a_follows = !a.follows.empty() && a.follows == b.id;
    found_.b_follows = !b.follows.empty() && b.follows == a.id;
  }

  Certificate judged() {
    try {
      compare();
    } catch (const Decided&) {
    }
    found_.verdict = found_.difference != RunDifference::none ? Verdict::fail
                     : found_.gap != CertificateGap::none     ? Verdict::inconclusive
                                                              : Verdict::pass;
    return found_;
  }

 private:
  static constexpr int64_t kBlock = int64_t{1} << 20;  // elements in memory at once, of a tensor

  // How a parameter's gradients may have been divided, in all steps so far.
  struct Means {
    uint32_t of_a = kAnyMean, of_b = kAnyMean;
    // Both mean, or both sum; keeps what may still be.
    bool explain() {
      for (const uint32_t kind : {kDivided, bit_of(MeanBy::sum)}) {
        const bool both = (of_a & kind) != 0 && (of_b & kind) != 0;
        if (both) continue;
        of_a &= ~kind;
        of_b &= ~kind;
      }
      return of_a != 0 && of_b != 0;
    }
  };

  [[noreturn]] void differ(RunDifference difference, GradientPlace place) {
    found_.difference = difference;
    found_.place = std::move(place);
    throw Decided();
  }
  [[noreturn]] void stop(CertificateGap gap, GradientPlace place) {
    found_.gap = gap;
    found_.place = std::move(place);
    throw Decided();
  }

  void compare() {
    if (a_.world != b_.world) stop(CertificateGap::other_world, {});
    compare_start();
    for (const size_t both = std::min(a_.steps.size(), b_.steps.size()); at_ < both; ++at_) {
      if (!a_.steps[at_].whole || !b_.steps[at_].whole) break;
      compare_step();
      ++found_.steps;
    }
    finish();
  }

  void finish() {
    check_ends();
    if (found_.differing > 0 && !found_.control_failed) stop(CertificateGap::no_control, {});
  }

  void compare_start() {
    for (const auto* log : {&a_, &b_})
      for (const std::string& name : log->names) {
        const bool in_both = a_.start.count(name) == 1 && b_.start.count(name) == 1;
        if (!in_both) differ(RunDifference::parameters, {0, 0, 0, name});
        if (a_.start.at(name) != b_.start.at(name)) differ(RunDifference::start, {0, 0, 0, name});
      }
  }

  void compare_step() {
    differs_ = false;
    const GradientStep &a = a_.steps[at_], &b = b_.steps[at_];
    for (const std::string& name : a_.names) compare_local(a, b, name);
    for (const std::string& name : a_.names) compare_reduced(a, b, name);
    for (const std::string& name : a_.names) compare_given(a, b, name);
    for (const GradientStep* step : {&a, &b}) compare_replicas(*step, step == &a);
    for (const auto& [name, sum] : a.updated) {
      const auto other = b.updated.find(name);
      if (other != b.updated.end() && other->second == sum) continue;
      if (differs_ && !follows()) stop_apart();
      compare_rates(a, b);
      differ(RunDifference::update, place(name));
    }
  }

  void compare_replicas(const GradientStep& step, bool in_a) {
    for (size_t rank = 0; rank < step.replicas.size(); ++rank)
      for (const auto& [name, sum] : step.replicas[rank]) {
        const auto of_rank_0 = step.updated.find(name);
        if (of_rank_0 != step.updated.end() && of_rank_0->second == sum) continue;
        found_.in_a = in_a;
        differ(RunDifference::replicas, place(name, static_cast<int64_t>(rank)));
      }
  }

  bool follows() const { return found_.a_follows || found_.b_follows; }

  void compare_rates(const GradientStep& a, const GradientStep& b) {
    for (size_t i = 0; i < std::min(a.rates.size(), b.rates.size()); ++i) {
      if (a.rates[i] == b.rates[i]) continue;
      found_.rate_a = a.rates[i];
      found_.rate_b = b.rates[i];
      return;
    }
  }

  void compare_given(const GradientStep& a, const GradientStep& b, const std::string& name) {
    const LoggedGradient *of_a = find(a.given, name), *of_b = find(b.given, name);
    if (of_a == nullptr && of_b == nullptr) return;
    found_.a_clips = of_a != nullptr;
    found_.b_clips = of_b != nullptr;
    if (of_a == nullptr || of_b == nullptr) differ(RunDifference::clipping, place(name));
    if (!same_shape(*of_a, *of_b)) differ(RunDifference::parameters, place(name));
    if (of_a->type == GradientType::float32)
      compare_clipped<float>(*of_a, *of_b, place(name));
    else
      compare_clipped<double>(*of_a, *of_b, place(name));
  }

  template <class T>
  void compare_clipped(const LoggedGradient& of_a, const LoggedGradient& of_b, GradientPlace here) {
    if (!measure<T>(of_a, of_b, &here)) return;
    const double epsilon = std::numeric_limits<T>::epsilon();
    if (!(found_.distance <= kClippingRounding * epsilon) && (follows() || !differs_))
      differ(RunDifference::clipping, here);
    if (!(found_.distance <= kLocalRounding)) differ(RunDifference::clipping, here);
    found_.clipping = std::max(found_.clipping, found_.distance);
    differs_ = true;
  }

  // What has been compared up to here, this step's gradients included, is explained.
  [[noreturn]] void stop_apart() {
    ++found_.steps;
    const bool last = at_ + 1 == std::max(a_.steps.size(), b_.steps.size());
    if (last) {
      finish();
      throw Decided();
    }
    stop(CertificateGap::weights_apart, {static_cast<int64_t>(at_) + 1});
  }

  GradientPlace place(const std::string& name, int64_t rank = 0) const {
    return {static_cast<int64_t>(at_) + 1, rank, 0, name};
  }

  void compare_local(const GradientStep& a, const GradientStep& b, const std::string& name) {
    for (size_t rank = 0; rank < a.local.size(); ++rank) {
      const LoggedGradient *of_a = find(a.local[rank], name), *of_b = find(b.local[rank], name);
      if (of_a == nullptr && of_b == nullptr) continue;
      const GradientPlace here = place(name, static_cast<int64_t>(rank));
      if (of_a == nullptr || of_b == nullptr) differ(RunDifference::local_gradient, here);
      if (!same_shape(*of_a, *of_b)) differ(RunDifference::parameters, here);
      if (of_a->type == GradientType::float32)
        compare_local_bits<float>(*of_a, *of_b, here);
      else
        compare_local_bits<double>(*of_a, *of_b, here);
    }
  }

  template <class T>
  void compare_local_bits(const LoggedGradient& of_a, const LoggedGradient& of_b,
                          GradientPlace here) {
    if (!measure<T>(of_a, of_b, &here)) return;
    if (found_.distance <= kLocalRounding) stop(CertificateGap::local_rounding, here);
    differ(RunDifference::local_gradient, here);  // a NaN, too
  }

  // How far two tensors are apart, and where first. False: they have the same bits.
  template <class T>
  bool measure(const LoggedGradient& of_a, const LoggedGradient& of_b, GradientPlace* here) {
    double norm = 0, apart = 0;
    bool differ = false;
    for (int64_t begin = 0; begin < of_a.elements; begin += kBlock) {
      const std::vector<T> a = read<T>(a_, of_a, begin, here->name);
      const std::vector<T> b = read<T>(b_, of_b, begin, here->name);
      for (size_t i = 0; i < a.size(); ++i) {
        const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
        norm += x * x;
        if (same_bits(a[i], b[i])) continue;
        apart += (x - y) * (x - y);
        if (!differ) put_element(begin + static_cast<int64_t>(i), x, y, here);
        differ = true;
      }
    }
    found_.distance = norm > 0 ? std::sqrt(apart / norm) : std::sqrt(apart);
    return differ;
  }

  static void put_element(int64_t element, double a, double b, GradientPlace* here) {
    here->element = element;
    here->a = a;
    here->b = b;
  }

  void compare_reduced(const GradientStep& a, const GradientStep& b, const std::string& name) {
    const LoggedGradient *of_a = find(a.reduced, name), *of_b = find(b.reduced, name);
    if (of_a == nullptr && of_b == nullptr) return;
    if (of_a == nullptr || of_b == nullptr) differ(RunDifference::missing_gradient, place(name));
    if (!same_shape(*of_a, *of_b)) differ(RunDifference::parameters, place(name));
    if (of_a->type == GradientType::float32)
      compare_sums<float>(*of_a, *of_b, name);
    else
      compare_sums<double>(*of_a, *of_b, name);
    ++found_.tensors;
    found_.elements += of_a->elements;
  }

  template <class T>
  void compare_sums(const LoggedGradient& of_a, const LoggedGradient& of_b,
                    const std::string& name) {
    Means& by = means_[name];
    for (int64_t begin = 0; begin < of_a.elements; begin += kBlock) {
      const std::vector<T> a = read<T>(a_, of_a, begin, name), b = read<T>(b_, of_b, begin, name);
      const std::vector<std::vector<T>> ranks = contributions<T>(of_a, begin, name);
      std::vector<T> terms(ranks.size());
      for (size_t i = 0; i < a.size(); ++i) {
        if (same_bits(a[i], b[i])) continue;
        for (size_t rank = 0; rank < ranks.size(); ++rank) terms[rank] = ranks[rank][i];
        GradientPlace here = place(name);
        put_element(begin + static_cast<int64_t>(i), static_cast<double>(a[i]),
                    static_cast<double>(b[i]), &here);
        explain(terms, a[i], b[i], here, &by);
      }
    }
    found_.means_a &= by.of_a;
    found_.means_b &= by.of_b;
  }

  template <class T>
  void explain(const std::vector<T>& terms, T a, T b, const GradientPlace& here, Means* by) {
    if (!found_.first) found_.first = here;
    by->of_a = means_that_give(terms, a, by->of_a);
    by->of_b = means_that_give(terms, b, by->of_b);
    if (!by->explain()) not_explained(here);
    if (!found_.control_failed) try_control(terms, a);
    differs_ = true;
    ++found_.differing;
  }

  // By the local gradients of A, which are B's.
  template <class T>
  std::vector<std::vector<T>> contributions(const LoggedGradient& of, int64_t begin,
                                            const std::string& name) {
    std::vector<std::vector<T>> all;
    for (const auto& of_rank : a_.steps[at_].local) {
      const LoggedGradient* local = find(of_rank, name);
      if (local != nullptr && !same_shape(*local, of))
        differ(RunDifference::parameters, place(name));
      // A rank on which the parameter took no part adds zeros.
      all.push_back(local != nullptr ? read<T>(a_, *local, begin, name)
                                     : std::vector<T>(static_cast<size_t>(
                                           std::min(kBlock, of.elements - begin))));
    }
    return all;
  }

  [[noreturn]] void not_explained(const GradientPlace& here) {
    for (const GradientLog* log : {&a_, &b_})
      for (const auto& of_rank : log->steps[at_].local) {
        const LoggedGradient* local = find(of_rank, here.name);
        if (local != nullptr && local->backwards > 1) stop(CertificateGap::several_backwards, here);
      }
    if (static_cast<size_t>(found_.world) > kEveryOrderRanks)
      stop(CertificateGap::many_ranks, here);
    differ(RunDifference::reduction, here);
  }

  // With the sign of its largest contribution changed, no order may explain a result any more.
  template <class T>
  void try_control(std::vector<T> terms, T result) {
    const auto largest = std::max_element(terms.begin(), terms.end(),
                                          [](T a, T b) { return std::abs(a) < std::abs(b); });
    if (*largest == 0 || !std::isfinite(*largest)) return;
    *largest = -*largest;
    found_.control_failed = means_that_give(terms, result, kAnyMean) == 0;
  }

  // One block.
  template <class T>
  std::vector<T> read(const GradientLog& log, const LoggedGradient& gradient, int64_t begin,
                      const std::string& name) {
    const int64_t count = std::min(kBlock, gradient.elements - begin);
    std::vector<T> all = read_gradient<T>(log, gradient, begin, count);
    if (all.size() != static_cast<size_t>(count)) stop(CertificateGap::not_ended, place(name));
    return all;
  }

  void check_ends() {
    const GradientPlace here{found_.steps};
    for (const GradientLog* log : {&a_, &b_})
      if (!log->stopped.empty()) {
        found_.stopped = log->stopped;
        stop(CertificateGap::stopped, here);
      }
    if (!a_.ended || !b_.ended) stop(CertificateGap::not_ended, here);
    if (a_.steps.size() != b_.steps.size()) stop(CertificateGap::other_length, here);
  }

  const GradientLog &a_, &b_;
  std::map<std::string, Means> means_;
  size_t at_ = 0;         // the step that is compared, from 0
  bool differs_ = false;  // a reduced gradient of it
  Certificate found_;
};

}  // namespace

const char* name_of(RunDifference difference) {
  constexpr const char* kNames[] = {"none",           "parameters",       "start",
                                    "local_gradient", "missing_gradient", "reduction",
                                    "clipping",       "update",           "replicas"};
  return kNames[static_cast<size_t>(difference)];
}

const char* name_of(CertificateGap gap) {
  constexpr const char* kNames[] = {
      "none",       "other_world", "weights_apart", "local_rounding", "several_backwards",
      "many_ranks", "stopped",     "not_ended",     "other_length",   "no_control"};
  return kNames[static_cast<size_t>(gap)];
}

Certificate certify(const GradientLog& a, const GradientLog& b) { return Certifier(a, b).judged(); }

}  // namespace lockstep
