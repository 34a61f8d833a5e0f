#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// Still more of what jobs of strangers printed: the needed lines, in the form in which the program
// writes them; ranks, dates and counts are the thread's where it shows them.

constexpr const char* kGroupOfAll = "PG ID 0 PG GUID 0(default_pg)";

std::string watchdog_says(int64_t rank, const std::string& what) {
  return fmt::format("[rank{}]:[E904 23:21:18.043790828 ProcessGroupNCCL.cpp:1834] {}\n", rank,
                     what);
}

std::string timed_out_in(int64_t rank, const std::string& work) {
  return watchdog_says(rank, fmt::format("[Rank {}] Watchdog caught collective operation timeout: "
                                         "WorkNCCL(SeqNum={}, Timeout(ms)=600000) ran for 600029 "
                                         "milliseconds before timing out.",
                                         rank, work));
}

std::string timed_out_at(int64_t rank, const std::string& group, int64_t sequence, int64_t enqueued,
                         int64_t completed) {
  return watchdog_says(rank,
                       fmt::format("[{} Rank {}] Timeout at NCCL work: {}, last enqueued NCCL "
                                   "work: {}, last completed NCCL work: {}.",
                                   group, rank, sequence, enqueued, completed));
}

std::string gpu_failed_at(int64_t rank, const std::string& group, const std::string& what) {
  return watchdog_says(rank,
                       fmt::format("[{} Rank {}] Process group watchdog thread terminated with "
                                   "exception: CUDA error: {}",
                                   group, rank, what));
}

std::string rank_raised(int64_t rank, const std::string& where, const std::string& last,
                        const std::string& before = "") {
  const std::string mine = fmt::format("{}[rank{}]: ", before, rank);
  return mine + "Traceback (most recent call last):\n" + mine + "  File \"" + where +
         "\", line 315, in step\n" + mine + last + "\n";
}

std::string raised_by_nobody(const std::string& where, const std::string& last) {
  return "Traceback (most recent call last):\n  File \"" + where + "\", line 14, in step\n" + last +
         "\n";
}

std::string ended_part(int64_t rank, int64_t code, const std::string& time) {
  return fmt::format(
      "  time      : {0}\n  rank      : {1} (local_rank: {1})\n  exitcode  : {2} (pid: 2630)\n",
      time, rank, code);
}

std::string root_cause_of(const std::string& parts) {
  return "Root Cause (first observed failure):\n" + parts;
}

std::string ended_by_deepspeed(int64_t code) {
  return fmt::format(
      "[2023-11-02 09:24:15,234] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 3301\n"
      "[2023-11-02 09:24:15,234] [ERROR] [launch.py:321:sigkill_handler] ['python3', '-u', "
      "'train.py', '--local_rank=3'] exits with return code = {}\n",
      code);
}

constexpr const char* kDistributedFile = "torch/distributed/distributed_c10d.py";
const std::string kUnexpectedNan =
    "Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass "
    "before data-parallel communication collective')";

std::vector<PublicLog> logs_of_one_rank() {
  const std::string memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ";
  return {
      {"OpenBMB/MiniCPM-V#770", root_cause_of(ended_part(0, -9, "2025-01-21_10:02:11")), {0}},
      {"stepfun-ai/Step-Video-T2V#29",
       root_cause_of(ended_part(2, -9, "2025-02-19_17:36:20")),
       {2}},
      {"sgl-project/sglang#4584",
       gpu_failed_at(14, "PG ID 2 PG GUID 3", "an illegal memory access was encountered"),
       {14}},
      {"sgl-project/sglang#8336",
       gpu_failed_at(0, "PG ID 2 PG GUID 3", "an illegal memory access was encountered"),
       {0}},
      {"sgl-project/sglang#3204",
       "[2025-01-29 08:52:44 TP5] Using default MoE config.\n[2025-01-29 08:53:02 TP3] Scheduler "
       "hit an exception: Traceback (most recent call last):\n  File \"scheduler.py\", line 1787, "
       "in run_scheduler_process\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n",
       {3}},
      {"huggingface/accelerate#3511",
       rank_raised(0, "deepspeed/runtime/engine.py", memory + "2.00 GiB."),
       {0}},
      {"huggingface/optimum-habana#289",
       rank_raised(0, "modeling_bloom.py",
                   "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for "
                   "size::3288334336 (3136)MB"),
       {0}},
      {"NVIDIA/Megatron-LM#5026",
       rank_raised(3, "training.py",
                   "RuntimeError: Rank 3, node n, device 3, iteration 3: " + kUnexpectedNan,
                   "[default3]:"),
       {3}},
      {"modelscope/ms-swift#9791",
       rank_raised(14, "sft.py",
                   "RuntimeError: Rank 14, node n, device 6, iteration 1: " + kUnexpectedNan),
       {14}},
      {"NVIDIA-BioNeMo/bionemo-recipes#794",
       rank_raised(29, "module.py",
                   "RuntimeError: Rank 29, node n, device 5, iteration 9: " + kUnexpectedNan,
                   "29: "),
       {29}},
      {"huggingface/accelerate#1192",
       raised_by_nobody("module.py",
                        "RuntimeError: CUDA error: uncorrectable ECC error encountered") +
           "[15:58:29] WARNING  Sending process 197 closing signal SIGTERM   api.py:699\n" +
           root_cause_of(ended_part(3, 1, "2023-03-17_15:58:30")),
       {3}}};
}

std::vector<PublicLog> logs_of_waiting_ranks() {
  const auto full_mesh = [](int64_t rank) {
    return fmt::format(
        "[rank{}]:[E421 02:05:38.764490322 ProcessGroupGloo.cpp:143] Gloo connectFullMesh failed "
        "with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n",
        rank);
  };
  const auto stuck = [](int64_t rank) {
    return watchdog_says(rank,
                         fmt::format("[{} Rank {}] ProcessGroupNCCL's watchdog got stuck for 480 "
                                     "seconds without making progress",
                                     kGroupOfAll, rank));
  };
  return {
      {"ecmwf/WeatherGenerator#1533",
       timed_out_in(2, "41, OpType=ALLREDUCE, NumelIn=1, NumelOut=1")},
      {"modelscope/ms-swift#9191", stuck(15) + stuck(8) + stuck(9)},
      {"hiyouga/LlamaFactory#5450",
       timed_out_in(1, "616, OpType=ALLREDUCE, NumelIn=17891328, NumelOut=17891328")},
      {"PKU-YuanGroup/UniWorld#46", timed_out_in(6, "12, OpType=_ALLGATHER_BASE")},
      {"CVL-UESTC/PFT-SR#13", timed_out_at(6, kGroupOfAll, 70005, 70005, 70004) +
                                  timed_out_at(7, kGroupOfAll, 70005, 70005, 70004) +
                                  timed_out_in(2, "70002, OpType=ALLREDUCE, NumelIn=275094")},
      {"DataArcTech/SQL-R1#18",
       "(WorkerDict pid=3944197) [rank2]:[E816 01:09:38.174648046 ProcessGroupNCCL.cpp:1515] [PG 0 "
       "(default_pg) Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
       "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600034 milliseconds "
       "before timing out. [repeated 2x across cluster]\n"},
      {"bcmi/GPSDiffusion-Object-Shadow-Generation-SDXL#23",
       timed_out_at(3, "PG 0 (default_pg)", 570939, 571107, 570938)},
      {"ultralytics/yolov5#4409",
       "75% 24/32 [01:09<00:22,  2.83s/it][E ProcessGroupNCCL.cpp:566] [Rank 1] Watchdog caught "
       "collective operation timeout: WorkNCCL(OpType=BROADCAST, Timeout(ms)=60000) ran for 66853 "
       "milliseconds before timing out.\n"},
      {"DeepAuto-AI/hip-attention#59", full_mesh(4) + full_mesh(6)},
      {"gpustack/gpustack#2125", "(RayWorkerWrapper pid=933, ip=50.147.43.24) " + full_mesh(1)},
      {"pytorch/pytorch#108732",
       raised_by_nobody(kDistributedFile,
                        "RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:799] connect "
                        "[172.31.71.170]:13195: Connection refused")},
      {"sehoffmann/dmlcloud#47",
       raised_by_nobody(
           kDistributedFile,
           "RuntimeError: Gloo connectFullMesh failed with "
           "[../third_party/gloo/gloo/transport/tcp/pair.h:301] Connect timeout [none]")},
      {"vllm-project/vllm-ascend#3717",
       "(EngineCore_DP1 pid=325607) ERROR 10-27 13:45:16 [core.py:710] Traceback (most recent call "
       "last):\n(EngineCore_DP1 pid=325607) ERROR 10-27 13:45:16 [core.py:710] TimeoutError: RPC "
       "call to sample_tokens timed out.\n"},
      {"pytorch/xla#2387",
       "Exception in device=TPU:6: tensorflow/compiler/xla/xla_client/mesh_service.cc:294 : Failed "
       "to meet rendezvous 'loss_reduce': Socket closed (14)\n" +
           raised_by_nobody("xla_multiprocessing.py",
                            "RuntimeError: mesh_service.cc:294 : Failed to meet rendezvous "
                            "'loss_reduce': Socket closed (14)")}};
}

std::vector<PublicLog> logs_of_nobody() {
  const std::string shapes =
      "accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation "
      "due to shape mismatches. All shapes across devices must be valid.";
  const std::string segment =
      "torch.distributed.DistBackendError: NCCL error in: x.cpp:2028, unhandled system error, NCCL "
      "version 2.20.5\n";
  const auto no_segment = [&](int64_t rank) {
    return rank_raised(rank, kDistributedFile, segment) +
           fmt::format(
               "[rank{}]: Error while creating shared memory segment /dev/shm/nccl-c8G2vd "
               "(size 5767520)\n",
               rank);
  };
  const std::string last = "2026-09-07_13:02:58";
  return {
      {"vllm-project/speculators#1115", ended_part(3, 1, last) +
                                            ended_part(0, -9, "2026-09-07_13:03:29") +
                                            root_cause_of(ended_part(1, 1, last))},
      {"sgl-project/sglang#8296",
       "  what():  [PG ID 2 PG GUID 3 Rank 1] Process group watchdog thread terminated with "
       "exception: CUDA error: an illegal memory access was encountered\n"},
      {"sgl-project/sglang#6624",
       "[2025-05-26 07:48:17 DP1 TP2] Scheduler hit an exception: Traceback (most recent call "
       "last):\n  File \"scheduler.py\", line 2311, in run_scheduler_process\n"},
      {"vllm-project/vllm#18045",
       "(VllmWorker rank=2 pid=267) Process VllmWorker-2:\n(VllmWorker rank=3 pid=268) Traceback "
       "(most recent call last):\n(VllmWorker rank=2 pid=267) Traceback (most recent call last):\n"
       "(VllmWorker rank=3 pid=268) RuntimeError: CUDA error: an illegal instruction was "
       "encountered\n(VllmWorker rank=2 pid=267) RuntimeError: CUDA error: an illegal instruction "
       "was encountered\n"},
      {"haotian-liu/LLaVA#739", ended_by_deepspeed(-7)},
      {"liucongg/ChatGLM-Finetuning#102", ended_by_deepspeed(-9)},
      {"deepspeedai/DeepSpeedExamples#321",
       "memory allocation of memory allocation of 20971522097152 bytes failed\n" +
           ended_by_deepspeed(-6)},
      {"NVIDIA/nccl#1284",
       rank_raised(
           1, kDistributedFile,
           "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB "
           "memory.")},
      {"huggingface/trl#2882", rank_raised(3, "accelerate/utils/operations.py", shapes) +
                                   rank_raised(0, "accelerate/utils/operations.py", shapes)},
      {"huggingface/lighteval#204", rank_raised(3, "accelerate/utils/operations.py", shapes)},
      {"NVIDIA/DeepLearningExamples#1386", no_segment(2) + no_segment(3)},
      {"ROCm/legacy-rocm-build#6023",
       ":0:rocdevice.cpp:3586: Callback: Queue 0x7f78cb400000 aborting with error : "
       "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: "
       "0x1016\n"},
      {"Nixtla/neuralforecast#1291",
       "(_train_tune pid=22946) Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4\n"
       "(_train_tune pid=22946) [rank: 1] Child process with PID 23026 terminated with code 1. "
       "Forcefully terminating all other processes to avoid zombies\n"},
      {"ray-project/ray#47461",
       "(raylet) A worker died or was killed while executing a task by an unexpected system "
       "error.\n(TorchTrainer pid=89392) Worker 0 has failed.\n"},
      {"ray-project/ray#47759",
       raised_by_nobody("ray/train/_internal/utils.py",
                        "ray.exceptions.ActorDiedError: The actor died unexpectedly before "
                        "finishing this task.")},
      {"microsoft/agent-lightning#284",
       "(WorkerDict pid=1234) Fatal Python error: Segmentation fault\n(raylet) A worker died or "
       "was killed while executing a task by an unexpected system error.\n"},
      {"alibaba/Pai-Megatron-Patch#60",
       "Traceback (most recent call last):\n  File \"pretrain.py\", line 101, in <module>\n"
       "AssertionError: Rank 3: found NaN in local grad norm in backwards pass. Device: 3, node: "
       "n\n"},
      {"pytorch/xla#3947",
       "*** SIGTERM received by PID 7636 (TID 7636) on cpu 6 from PID 7408; stack trace: ***\n"},
      {"ArjunaCluster/ArjunaUsers#52",
       "/var/spool/slurmd/job00191/slurm_script: line 28:  8156 Killed                  python3 "
       "main.py\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup.\n"}};
}

TEST(PublicMore, RanksThatFailedOnTheirOwnAreNamed) { expect_as_written(logs_of_one_rank()); }

TEST(PublicMore, RanksThatWaitAreNot) { expect_as_written(logs_of_waiting_ranks()); }

TEST(PublicMore, WhereNobodyCanTellNobodyIsNamed) { expect_as_written(logs_of_nobody()); }

}  // namespace
}  // namespace lockstep
