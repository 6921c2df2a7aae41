"""Code shared by the PyTorch peers: name=value settings, and timing of steps by the method of bench/step.h."""
import json
import os
import resource
import statistics
import sys
import time

import torch


def parse(program, defaults):
    """Merges the settings of the command line into the defaults; threads=0 means all cores."""
    settings = dict(defaults, threads="0", steps="7", dtype="f32", compile="0", device="cpu", json="0")
    for argument in sys.argv[1:]:
        name, _, value = argument.partition("=")
        if name not in settings:
            sys.exit(f"{program}: '{argument}' is unknown; expected one of {' '.join(key + '=' for key in settings)}")
        settings[name] = value
    torch.set_num_threads(int(settings["threads"]) or len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    if settings["device"] != "cpu":
        torch.backends.cudnn.benchmark = True
    return settings


def autocast(settings):
    kind = settings["device"].partition(":")[0]
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=settings["dtype"] == "bf16")


def resident_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6


def time_steps(program, settings, what, unit, step):
    """Times step(), which returns the loss as a tensor, and prints the median. On a GPU, times five consecutive steps
    and one wait for the GPU, and divides by five."""
    batch, on_gpu = int(settings["batch"]), settings["device"] != "cpu"
    in_a_row = 5 if on_gpu else 1
    losses = [step().item(), step().item()]
    seconds, cores = [], []
    for _ in range(int(settings["steps"])):
        start, cpu_start = time.perf_counter(), time.process_time()
        for _ in range(in_a_row):
            loss = step()
        losses.append(loss.item())
        seconds.append((time.perf_counter() - start) / in_a_row)
        cores.append((time.process_time() - cpu_start) / in_a_row)
    if not losses[-1] < losses[0]:
        sys.exit(f"{program}: the loss went from {losses[0]} to {losses[-1]}; expected a decrease")
    median = statistics.median(seconds)
    compiled = ", compiled" if settings["compile"] == "1" else ""
    where = settings["device"] if on_gpu else f"{torch.get_num_threads()} threads"
    print(f"{what}, {where}{compiled}")
    peak_mb = torch.cuda.max_memory_allocated() * 1e-6 if on_gpu else resident_mb()
    print(f"  {median:.4f} s/step (cores {statistics.median(cores):.4f} s)  {batch / median:.2f} {unit}/s   "
          f"peak {peak_mb:.0f} MB {'tensors' if on_gpu else 'resident'}   loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    if settings["json"] == "1":
        print(json.dumps(dict(name=what + compiled, s_per_step=median, per_s=batch / median, tensor_mb=peak_mb,
                              core_s=statistics.median(cores), first_loss=losses[0], last_loss=losses[-1])), flush=True)
