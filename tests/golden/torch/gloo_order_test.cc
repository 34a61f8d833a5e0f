// Our orders of addition against libgloo itself, every element of every rank's result.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>
#include <gtest/gtest.h>

#include <exception>
#include <random>
#include <thread>

#include "golden/reduction_order.h"

namespace lockstep {
namespace {

template <class T>
using Values = std::vector<std::vector<T>>;

// Values of very different size and both signs, so that every other order shows.
template <class T>
Values<T> cancelling(int64_t ranks, int64_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(ranks * 1'000'003 + count));
  std::normal_distribution<T> normal;
  Values<T> values(static_cast<size_t>(ranks));
  for (auto& of_rank : values) {
    of_rank.resize(static_cast<size_t>(count));
    for (T& value : of_rank) value = std::ldexp(normal(random), static_cast<int>(random() % 12));
  }
  for (size_t e = 0; ranks > 2 && e < static_cast<size_t>(count); e += 3)
    values[1][e] = -values[0][e];
  return values;
}

template <class T>
void all_reduce(const std::string& algorithm, const std::shared_ptr<gloo::Context>& context,
                std::vector<T>& data, uint32_t tag) {
  const std::vector<T*> pointers = {data.data()};
  const int count = static_cast<int>(data.size());
  if (algorithm == "ring_chunked") {
    gloo::AllreduceRingChunked<T>(context, pointers, count).run();
  } else if (algorithm == "halving_doubling") {
    gloo::AllreduceHalvingDoubling<T>(context, pointers, count).run();
  } else {
    gloo::AllreduceOptions options(context);
    options.setOutputs(pointers, data.size());
    options.setAlgorithm(algorithm == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                              : gloo::AllreduceOptions::Algorithm::RING);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<T>));
    options.setTag(tag);
    gloo::allreduce(options);
  }
}

// W ranks as threads over TCP on the loopback address.
class Ranks {
 public:
  explicit Ranks(int64_t count) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    contexts_.resize(static_cast<size_t>(count));
    each([&](size_t rank) {
      auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank),
                                                                 static_cast<int>(count));
      context->setTimeout(std::chrono::milliseconds(30'000));
      connect(*context);
      contexts_[rank] = context;
    });
  }

  // What rank r has afterwards.
  template <class T>
  Values<T> reduced(const std::string& algorithm, Values<T> values) {
    ++tag_;
    each([&](size_t rank) {
      all_reduce(algorithm, contexts_[rank], values[rank], tag_);
      // Nobody may tear down buffers of the old algorithms while a peer still reads.
      gloo::BarrierOptions barrier(contexts_[rank]);
      barrier.setTag(tag_);
      gloo::barrier(barrier);
    });
    return values;
  }

 private:
  // Older Gloo takes the store as a reference, newer a shared pointer.
  template <class Context>
  void connect(Context& context) {
    auto device = device_;
    if constexpr (requires { context.connectFullMesh(*store_, device); })
      context.connectFullMesh(*store_, device);
    else
      context.connectFullMesh(store_, device);
  }

  template <class Work>
  void each(Work work) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> errors(contexts_.size());
    for (size_t rank = 0; rank < contexts_.size(); ++rank)
      threads.emplace_back([&, rank] {
        try {
          work(rank);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }

  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::rendezvous::HashStore> store_ =
      std::make_shared<gloo::rendezvous::HashStore>();
  std::vector<std::shared_ptr<gloo::Context>> contexts_;
  uint32_t tag_ = 0;
};

template <class T>
void expect_equal(Ranks& ranks, const std::string& algorithm, int64_t world_size, int64_t count) {
  const Values<T> inputs = cancelling<T>(world_size, count);
  std::vector<const T*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  std::vector<T> expected(static_cast<size_t>(count));
  sum_in_order<T>(algorithm, pointers, count, expected.data());
  const Values<T> results = ranks.reduced(algorithm, inputs);
  for (size_t rank = 0; rank < results.size(); ++rank)
    for (size_t e = 0; e < expected.size(); ++e)
      ASSERT_EQ(results[rank][e], expected[e])
          << algorithm << " W=" << world_size << " n=" << count << " rank=" << rank << " e=" << e
          << " bytes=" << sizeof(T);
}

std::vector<int64_t> sizes_around_chunks(int64_t ranks) {
  std::vector<int64_t> sizes = {1, 2, 255, 256, 257, 1000};
  for (int64_t edge : {ranks, 2 * ranks, 4 * ranks, ranks * ranks, 2 * ranks * 256})
    for (int64_t size : {edge - 1, edge, edge + 1}) sizes.push_back(size);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

class GlooOrder : public ::testing::TestWithParam<int64_t> {};

TEST_P(GlooOrder, IsReproducedElementByElement) {
  const int64_t world_size = GetParam();
  Ranks ranks(world_size);
  for (const char* algorithm : {"ring", "bcube", "halving_doubling", "ring_chunked"})
    for (int64_t count : sizes_around_chunks(world_size)) {
      expect_equal<float>(ranks, algorithm, world_size, count);
      if (HasFatalFailure()) return;
      if (count % 3 == 1) expect_equal<double>(ranks, algorithm, world_size, count);
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, GlooOrder, ::testing::Range<int64_t>(2, 9),
                         [](const auto& size) { return "W" + std::to_string(size.param); });

// More than 2 W segments of 1 MiB: chunks then hold several whole segments.
TEST(GlooOrderLarge, RingWithFullSegments) {
  for (int64_t world_size : {3, 4}) {
    Ranks ranks(world_size);
    const int64_t segment = (1 << 20) / static_cast<int64_t>(sizeof(float));
    for (int64_t count : {2 * world_size * segment - 1, 2 * world_size * segment + 1,
                          (2 * world_size + 1) * segment + 77})
      expect_equal<float>(ranks, "ring", world_size, count);
    expect_equal<double>(ranks, "ring", world_size, world_size * segment + 1);
  }
}

// Control: a sum in rank order is not what Gloo's ring gives, so the comparison can fail.
TEST(GlooOrderControl, RankOrderIsRefuted) {
  for (int64_t world_size : {3, 6, 7}) {
    Ranks ranks(world_size);
    const Values<float> inputs = cancelling<float>(world_size, 1000);
    std::vector<const float*> pointers;
    for (const auto& input : inputs) pointers.push_back(input.data());
    std::vector<float> plain(1000);
    sum_in_order<float>("rank_order", pointers, 1000, plain.data());
    EXPECT_NE(ranks.reduced("ring", inputs)[0], plain) << world_size;
  }
}

}  // namespace
}  // namespace lockstep
