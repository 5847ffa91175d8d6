"use strict";
/* What scripts/advise.py says of a case, said by a page: ranks the routes by what was measured.
 *
 * A mirror of analysis/curves.py, analysis/case.py and pages/case.py, function by function and under their names in
 * camel case: why something is so stands there. tests/test_chooser.py asks both, and holds every word and digit of
 * theirs together. What does not depend on the case comes from Python with the figures, see pages/chooser.py.
 */
const advise = (() => {
  const [NUMPY, TORCH, CUDA] = ["numpy", "torch", "cuda"];
  const [ALIAS, COPY, INTO] = ["alias", "copy", "into"];
  const [PAGEABLE, PINNED] = ["pageable", "pinned"];
  const [COMPLETION, ENQUEUE, LIMIT, PIN, ALLOCATE] = ["completion", "enqueue", "limit", "pin_copy", "allocate"];
  const [MEASURED, BETWEEN, BEYOND] = ["measured", "between", "beyond"];
  const [CONTIGUOUS, ZERO_D] = ["contiguous", "0-d"];
  const [HOST_TO_DEVICE, DEVICE_TO_HOST] = ["host→device", "device→host"];
  const UNITS = { "": 1, k: 1e3, m: 1e6, g: 1e9, ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30 };

  class UserError extends Error {}

  const compare = (key, other) => (key < other ? -1 : key > other ? 1 : 0);
  // Python's min and max by a key: the first of those that are alike
  function least(values, key) {
    return values.reduce((smallest, other) => (compare(key(other), key(smallest)) < 0 ? other : smallest));
  }
  function most(values, keys) {
    return values.reduce((largest, other) => {
      const differs = keys(other).map((key, place) => compare(key, keys(largest)[place])).find((each) => each !== 0);
      return differs > 0 ? other : largest;
    });
  }

  /* --- pages/show.py ---------------------------------------------------------------------------------------------- */

  /* Mantissa and power of ten, rounded as Python does: what lies halfway, exactly, to the even digit. */
  function rounded(value, digits) {
    const [mantissa, power] = value.toExponential(60).split("e");
    const exact = mantissa.replace(".", "");
    if (/^50*$/.test(exact.slice(digits)) && exact[digits - 1] % 2 === 0)
      return [Number(`${exact[0]}.${exact.slice(1, digits)}`), Number(power)];
    return value.toExponential(digits - 1).split("e").map(Number);
  }

  const show = {
    code: (text) => `\x0e${text}\x0f`,
    spans: (sentence) => sentence.split(/\x0e([^\x0e\x0f]*)\x0f/).map((text, place) => [text, place % 2 === 1]),
    plain: (sentence) => show.spans(sentence).map(([text, code]) => (code ? `\`${text}\`` : text)).join(""),
    significant(value, digits = 3) {
      if (value === 0 || !Number.isFinite(value)) return value === 0 ? "0" : "n/a";
      const [mantissa, power] = rounded(value, digits);
      return grouped(Number(`${mantissa}e${power}`), Math.max(0, digits - 1 - power));
    },
    scaled(value) {
      for (const [scale, prefix] of [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]])
        if (Number(rounded(value, 3).join("e")) >= scale) return [show.significant(value / scale), `${prefix}s`];
      return [show.significant(value / 1e-9, 2), "ns"];
    },
    seconds: (value, calm = true) => show.scaled(value).join(" ") + (calm ? "" : " ~"),
    interval(low, high) {
      const [[first, unit], [last, other]] = [show.scaled(low), show.scaled(high)];
      if (unit !== other) return `${first} ${unit} to ${last} ${other}`;
      return first === last ? `${first} ${unit}` : `${first} to ${last} ${unit}`;
    },
    size(nbytes) {
      for (const [power, unit] of [[30, "GiB"], [20, "MiB"], [10, "KiB"]])
        if (nbytes >= 2 ** power) return `${Number(rounded(nbytes / 2 ** power, 4).join("e"))} ${unit}`;
      return `${nbytes} B`;
    },
    sizes: (values) => show.join(values.map(show.size)),
    bandwidth: (rate) => `${show.significant(rate / 1e9, 2)} GB/s`,
    percent: (share) => `${(100 * share).toFixed(0)} %`,
    ratio: (value) => `${show.significant(value, value >= 10 && value < 100 ? 2 : 3)}×`,
    join: (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`),
    codes: (expressions) => show.join(expressions.map(show.code)),
  };
  const grouped = (value, decimals = 0) =>
    value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });

  /* --- analysis/curves.py: a curve is a Map from sizes to points --------------------------------------------------- */

  const latency = (curve) => Math.min(...[...curve.values()].map((point) => point.seconds));
  const parted = (breaks, nbytes, other) =>
    breaks.some((size) => Math.min(nbytes, other) < size && size <= Math.max(nbytes, other));

  function neighbours(curve, nbytes, breaks = []) {
    if (curve.has(nbytes)) return [curve.get(nbytes)];
    const sizes = [...curve.keys()];
    const below = Math.max(0, ...sizes.filter((size) => size < nbytes));
    const above = Math.min(...sizes.filter((size) => size > nbytes));
    const near = [below, above].filter((size) => size && Number.isFinite(size));
    const side = near.filter((size) => !parted(breaks, size, nbytes));
    return (side.length ? side : near).map((size) => curve.get(size));
  }

  function figureAt(curve, nbytes, breaks = [], moves = true) {
    const [around, side] = [neighbours(curve, nbytes), neighbours(curve, nbytes, breaks)];
    const sizes = around.map((point) => point.nbytes);
    if (sizes.length === 1 && sizes[0] === nbytes) {
      const { seconds, low, high } = around[0];
      return { seconds, low, high, how: MEASURED, sizes, broken: false };
    }
    if (side.length === 1) {
      const how = around.length === 2 ? BETWEEN : BEYOND;
      const [seconds, low, high] = goingOn(curve, side[0], nbytes, breaks, moves);
      return { seconds, low, high, how, sizes, broken: around.length === 2 };
    }
    const [left, right] = around;
    const shortest = latency(curve);
    const call = left.seconds >= data.byBytes * shortest ? shortest : null;
    const line = (name) => lines(around, left[name], right[name], nbytes, call);
    const [low, high] = [Math.min(...line("low")), Math.max(...line("high"))];
    return { seconds: line("seconds").at(-1), low, high, how: BETWEEN, sizes, broken: false };
  }

  function lines([{ nbytes: left }, { nbytes: right }], atLeft, atRight, nbytes, call) {
    const straight = atLeft + ((nbytes - left) / (right - left)) * (atRight - atLeft);
    if (call === null || Math.min(atLeft, atRight) <= call) return [straight];
    const power = Math.log(nbytes / left) / Math.log(right / left);
    return [straight, call + (atLeft - call) * ((atRight - call) / (atLeft - call)) ** power];
  }

  function goingOn(curve, point, nbytes, breaks, moves) {
    const alone = moves && curve.size === 1;
    const shortest = alone ? 0 : latency(curve);
    const ratio = nbytes / point.nbytes;
    const on = (at) => shortest + Math.max(0, at - shortest) * ratio;
    let [low, high] = [on(point.low), on(point.high)];
    if (alone) [low, high] = [Math.min(low, point.low), Math.max(high, point.high)];
    const before = [...curve.keys()].filter(
      (n) => n < point.nbytes === nbytes > point.nbytes && !parted(breaks, n, point.nbytes) && n !== point.nbytes,
    );
    if (before.length && point.seconds >= data.byBytes * shortest) {
      const last = curve.get(least(before, (n) => Math.abs(n - point.nbytes)));
      const steep = Math.log(point.seconds / last.seconds) / Math.log(point.nbytes / last.nbytes);
      low = Math.min(low, point.low * ratio ** steep);
      high = Math.max(high, point.high * ratio ** steep);
    }
    return [on(point.seconds), low, high];
  }

  /* --- analysis/contracts.py --------------------------------------------------------------------------------------- */

  /* "safe" stays: a route that returns early is good either way */
  const on = (contract, host) =>
    !host || !contract.hazard_memory || contract.hazard_memory.includes(host) ? contract : { ...contract, hazard: "" };
  const keepsDtype = (contract, dtype) => ["", dtype].includes(contract.casts_to);
  function memoryFor(contract, dtype, layout) {
    const shares = contract.view || (keepsDtype(contract, dtype) && !contract.copies.includes(layout));
    return contract.memory === ALIAS && !shares ? COPY : contract.memory;
  }

  /* --- analysis/case.py -------------------------------------------------------------------------------------------- */

  let data; // see pages/chooser.py; set by know()

  function know(embedded) {
    const { words, points, ...rest } = embedded;
    data = rest;
    data.points = points.map((row, place) => {
      const [route, direction, clock, host, dtype, layout] = row.slice(0, 6).map((word) => words[word]);
      const [nbytes, seconds, low, high, grad, arrays, calm, order, behind] = row.slice(6);
      const flags = { grad: Boolean(grad), calm: Boolean(calm) };
      return { place, route, direction, clock, host, dtype, layout, nbytes, seconds, low, high, arrays, order, behind, ...flags };
    });
  }

  const itemsize = (dtype) => (/\d+/.test(dtype) ? Math.floor(Number(dtype.match(/\d+/)[0]) / 8) : 1);
  const mayRequireGrad = (dtype) => /^(float|bfloat|complex)/.test(dtype);
  const uses = (route, name) => new RegExp(`\\b${name}\\b`).test(route);

  /* A case is {source, target, nbytes, dtype, layout, memory, host, grad, batch, enqueue, count}. */
  const USUAL = { dtype: "float32", layout: CONTIGUOUS, memory: "", host: "", grad: false, batch: 0, enqueue: false, count: 1 };
  function caseOf(given) {
    const theCase = { ...USUAL, ...given };
    theCase.direction = data.ways[`${theCase.source} ${theCase.target}`] ?? "";
    theCase.array = [theCase.source, theCase.target].includes(NUMPY);
    theCase.device = [theCase.source, theCase.target].includes(CUDA);
    theCase.total = theCase.nbytes * Math.max(1, theCase.batch);
    return theCase;
  }

  function rank(given) {
    const it = caseOf(given);
    check(it);
    checkKnown(it);
    const curves = curvesOf(it);
    const every = [...curves.values()].map(
      ({ route, host, bySource }) => [route, candidateOf(it, route, host, bySource), bySource],
    );
    const measured = every.map(([, each]) => each).filter(Boolean);
    const good = measured
      .filter((each) => each.good)
      .sort((candidate, other) => compare(candidate.unpriced, other.unpriced) || compare(candidate.total, other.total));
    if (!good.length) throw new UserError(nothing(it, measured.length > 0));
    const unbeaten = good.filter((candidate) => !good.some((other) => slower(candidate, other)));
    const level = unbeaten.length ? unbeaten : good.slice(0, 1);
    const beaten = new Set(level.filter((candidate) => level.some((other) => lost(candidate, other))));
    const ties = [...level].sort(
      (candidate, other) =>
        beaten.has(candidate) - beaten.has(other) || candidate.speaks[0].order - other.speaks[0].order,
    );
    ties.forEach((each) => (each.tie = level.length > 1));
    const ranked = [...ties, ...good.filter((each) => !level.includes(each))];
    const unsafe = measured.filter((each) => !each.good && slower(ranked[0], each));
    const unknown = [...new Set(every.filter(([, each]) => !each).map(([route]) => route))];
    const points = every.flatMap(([, , bySource]) => [...bySource.values()].flatMap((curve) => [...curve.values()]));
    return { case: it, ranked, unsafe, unknown, arrays: Math.max(...points.map((point) => point.arrays)) };
  }

  function slower(candidate, other) {
    if (candidate.unpriced !== other.unpriced) return candidate.unpriced;
    if (candidate.calm !== other.calm)
      return other.calm && candidate.total > other.total - other.figure.seconds + other.figure.high;
    const decided = compared(candidate, other);
    const apart =
      candidate.total - candidate.figure.seconds + candidate.figure.low >
      other.total - other.figure.seconds + other.figure.high;
    if (candidate.paid || other.paid || !decided.length) return apart;
    return decided.every(Boolean) || (apart && decided.some(Boolean));
  }

  function compared(candidate, other, wide = false) {
    const name = !(candidate.asUsual && other.asUsual) ? "anchors" : wide ? "around" : "speaks";
    return candidate[name].flatMap((a) =>
      other[name]
        .filter((b) => a.nbytes === b.nbytes && a.dtype === b.dtype && a.layout === b.layout && a.grad === b.grad)
        .map((b) => a.behind.includes(b.place)),
    );
  }

  const lost = (candidate, other) =>
    compared(candidate, other, true).some(Boolean) && !compared(other, candidate, true).some(Boolean);

  function curvesOf(it) {
    const fits = new Map(
      data.contracts.filter((c) => c.direction === it.direction && fit(it, c)).map((c) => [c.expression, c]),
    );
    const curves = new Map();
    for (const point of data.points) {
      if (point.direction !== it.direction || !fits.has(point.route) || Boolean(point.arrays) !== Boolean(it.batch))
        continue;
      if (it.device && !(it.host ? [it.host] : [PAGEABLE, PINNED]).includes(point.host)) continue;
      const clock = it.enqueue && fits.get(point.route).non_blocking ? ENQUEUE : COMPLETION;
      if (point.clock !== clock) continue;
      const key = `${point.route}\n${point.host}`;
      if (!curves.has(key)) curves.set(key, { route: point.route, host: point.host, bySource: new Map() });
      const { bySource } = curves.get(key);
      const source = `${point.dtype}\n${point.layout}\n${point.grad}`;
      if (!bySource.has(source)) bySource.set(source, new Map());
      bySource.get(source).set(point.nbytes, point);
    }
    return curves;
  }

  function fit(it, contract) {
    const memory = memoryFor(contract, it.dtype, it.layout);
    return (
      keepsDtype(contract, it.dtype) &&
      (it.memory ? [it.memory] : [ALIAS, COPY]).includes(memory) &&
      (!it.device || contract.array === it.array) &&
      !contract.refuses.includes(it.dtype) &&
      (!it.grad || contract.takes_grad)
    );
  }

  function candidateOf(it, route, host, curves) {
    const contract = on(data.contracts.find((c) => c.expression === route && c.direction === it.direction), host);
    const memory = memoryFor(contract, it.dtype, it.layout);
    const breaks = breaksOf(it.direction, memory);
    const wanted = `${it.dtype}\n${it.layout}\n${it.grad}`;
    const parts = (source) => source.split("\n");
    const alike = [...curves.keys()].filter((s) => memoryFor(contract, parts(s)[0], parts(s)[1]) === memory);
    if (!alike.length) return null;
    let usual = most(alike, (s) => {
      const [, layout, grad] = parts(s);
      return [curves.get(s).size, layout === it.layout, layout === CONTIGUOUS, grad === "false"];
    });
    if (curves.get(wanted)?.has(it.total)) usual = wanted;
    const curve = curves.get(usual);
    let figure = figureAt(curve, it.total, breaks, memory !== ALIAS);
    const [carried, anchors] = [[], []];
    for (const { what, instead, curve: differing } of differences(wanted, usual, curves)) {
      const both = [...differing.keys()].filter((size) => curve.has(size));
      if (!both.length) {
        if (what.includes(it.layout)) return null;
        carried.push({ what, instead, at: 0, factor: 1, calm: true });
        continue;
      }
      const at = least(both, (size) => Math.abs(Math.log(size / it.total)));
      const [mine, other] = [differing.get(at), curve.get(at)];
      anchors.push(mine);
      const calm = mine.calm && other.calm;
      const counts = !calm || other.behind.includes(mine.place) || mine.behind.includes(other.place);
      carried.push({ what, instead, at, factor: counts ? mine.seconds / other.seconds : 1, calm });
      if (counts) figure = carry(figure, mine, other, latency(curve));
    }
    const [paidOnce, paid] = once(it, route, host, memory);
    const [rate, share] = memory !== ALIAS ? rateOf(it, figure, curve) : [null, null];
    const speaks = neighbours(curve, it.total, breaks);
    const isNear = (size) => 1 / data.around <= size / it.total && size / it.total <= data.around;
    const around = [...curve.values()].filter((point) => speaks.includes(point) || isNear(point.nbytes));
    const gains = data.gains.filter(
      (gain) => gain.routes.includes(route) && memory !== ALIAS && !parted(breaks, gain.nbytes, it.total),
    );
    return {
      route, contract, memory, host, figure, carried, once: paidOnce, paid, rate, share, gains, speaks, around, anchors,
      total: figure.seconds + (paidOnce ? paidOnce.seconds / it.count : 0),
      tie: false,
      good: contract.safe || contract.non_blocking,
      calm: [...speaks, ...anchors].every((point) => point.calm),
      unpriced: Boolean(paid) && !paidOnce,
      asUsual: carried.every((each) => each.factor === 1),
      sizes: [...curve.keys()],
    };
  }

  function slowedOf(it, route) {
    const slowed = data.slowed.filter((each) => each.routes.includes(route) && it.layout === CONTIGUOUS);
    const sizes = slowed.map((each) => each.nbytes);
    if (!slowed.length || it.nbytes < Math.min(...sizes) || it.nbytes > Math.max(...sizes)) return null;
    return least(slowed, (each) => Math.abs(Math.log(each.nbytes / it.nbytes)));
  }

  /* [bytes, seconds] of a route along the sizes at which it was measured, and at the case's. */
  function line(it, { route, host, sizes: measured }) {
    const { bySource } = curvesOf(it).get(`${route}\n${host}`);
    const sizes = [...new Set([...measured, it.total])].sort((a, b) => a - b);
    const arrays = Math.max(1, it.batch);
    const candidateAt = (total) => candidateOf({ ...it, total, nbytes: total / arrays }, route, host, bySource);
    return sizes.map((total) => [total, candidateAt(total).figure.seconds]);
  }

  const breaksOf = (direction, memory) =>
    memory === COPY && direction !== HOST_TO_DEVICE && data.glibc ? [data.mapped] : [];

  function differences(wanted, usual, curves) {
    const [want, use] = [wanted.split("\n"), usual.split("\n")];
    const words = ([dtype, layout, grad]) => [dtype, layout, grad === "true" ? "requires grad" : "no grad"];
    const places = [0, 1, 2].filter((place) => want[place] !== use[place]);
    const pairs = places.map((place) => [words(want)[place], words(use)[place]]);
    if (curves.has(wanted) && places.length) {
      const [what, instead] = [0, 1].map((side) => pairs.map((pair) => pair[side]).join(" "));
      return [{ what, instead, curve: curves.get(wanted) }];
    }
    return places.map((place, index) => {
      const alone = want.map((_, n) => (n === place ? want : use)[n]).join("\n");
      return { what: pairs[index][0], instead: pairs[index][1], curve: curves.get(alone) ?? new Map() };
    });
  }

  function carry(figure, point, other, shortest) {
    const call = Math.min(point.seconds, other.seconds) >= data.byBytes * shortest ? shortest : 0;
    const carried = (seconds, taken, usual) => call + (Math.max(0, seconds - call) * (taken - call)) / (usual - call);
    return {
      ...figure,
      seconds: carried(figure.seconds, point.seconds, other.seconds),
      low: Math.min(carried(figure.low, point.low, other.seconds), carried(figure.low, point.seconds, other.high)),
      high: Math.max(carried(figure.high, point.high, other.seconds), carried(figure.high, point.seconds, other.low)),
    };
  }

  function once(it, route, host, memory) {
    if (it.host === PINNED || !it.device) return [null, ""];
    let clock, nbytes, what;
    if (host === PINNED) {
      if (it.direction === DEVICE_TO_HOST && memory !== INTO) return [null, ""];
      [clock, nbytes, what] = it.source === CUDA ? [ALLOCATE, it.nbytes, "h"] : [PIN, it.nbytes, "t"];
      if (uses(route, "buffers")) [nbytes, what] = [2 * it.nbytes, "buffers"];
    } else if (uses(route, "s")) [clock, nbytes, what] = [ALLOCATE, it.nbytes, "s"];
    else if (uses(route, "stages")) [clock, nbytes, what] = [ALLOCATE, data.chunks, "stages"];
    else return [null, ""];
    let curve = new Map(data.points.filter((point) => point.clock === clock).map((point) => [point.nbytes, point]));
    if (!curve.size) return [null, what];
    const smallest = Math.min(...curve.keys());
    if (nbytes < smallest) curve = new Map([[smallest, curve.get(smallest)]]);
    return [figureAt(curve, nbytes), what];
  }

  function rateOf(it, figure, curve) {
    if (it.enqueue || figure.seconds < data.byBytes * latency(curve)) return [null, null];
    const rate = it.total / figure.seconds;
    const direction = it.device ? it.direction : "";
    const of = data.points.filter((point) => point.clock === LIMIT && point.direction === direction);
    const limits = new Map(of.map((point) => [point.nbytes, point]));
    if (!limits.size) return [rate, null];
    if (it.device) return [rate, rate / Math.max(...[...limits].map(([size, point]) => size / point.seconds))];
    const there = figure.how === MEASURED && limits.has(it.total);
    return [rate, there ? limits.get(it.total).seconds / figure.seconds : null];
  }

  function check(it) {
    const wrong = (text) => {
      throw new UserError(text);
    };
    if (!it.direction) wrong(`--from ${it.source} --to ${it.target}: two of numpy, torch, cuda, and not the same`);
    if (it.nbytes < 1) wrong(`--nbytes ${it.nbytes}: one byte at least`);
    if (it.total > data.largest) wrong(`--nbytes ${it.nbytes}: more than memory holds`);
    if (!(it.count >= 1 && it.count <= data.largest))
      wrong(`--count ${it.count}: from one transfer to ${data.largest}`);
    if (it.batch < 0 || it.batch === 1) wrong(`--batch ${it.batch}: a batch is of two arrays at least`);
    if (it.batch && (it.device || [ALIAS, INTO].includes(it.memory) || it.grad || it.layout !== CONTIGUOUS))
      wrong("--batch is about arrays on the host that become a fresh one: no other option goes with it");
    if (it.memory === ALIAS && it.device) wrong("--share: nothing is shared between host and device");
    if (it.host && !it.device)
      wrong("--source: which memory matters for transfers alone, --from cuda or --to cuda");
    if (it.enqueue && !it.device)
      wrong("--enqueue: on the host every call holds the caller until it is done; it is about transfers");
    if (it.grad && it.source === NUMPY) wrong("--grad: a NumPy array requires no grad");
    if (it.grad && !mayRequireGrad(it.dtype))
      wrong(`--grad: floating point and complex tensors require grad, ${it.dtype} does not`);
  }

  function checkKnown(it) {
    const here = data.points.filter((point) => point.direction === it.direction);
    if (it.device && !here.length)
      throw new UserError(
        `no transfer ${it.direction} was measured on ${data.machine}: with an accelerator, ` +
          "python scripts/run.py --profile transfers does that",
      );
    const dtypes = data.dtypes[it.direction] ?? [];
    if (!dtypes.includes(it.dtype))
      throw new UserError(`--dtype ${it.dtype}: not timed ${it.direction}; there are ${dtypes.join(", ")}`);
    const why = data.lacking[`${it.direction} ${it.dtype}`];
    if (why) throw new UserError(`--dtype ${it.dtype}: not on this toolchain, ${why}`);
    const size = itemsize(it.dtype);
    if (it.nbytes % size)
      throw new UserError(`--nbytes ${it.nbytes}: no whole number of ${it.dtype}, which takes ${size} bytes`);
    const layouts = [...new Set(here.map((point) => point.layout))].sort();
    if (!layouts.includes(it.layout))
      throw new UserError(`--layout ${it.layout}: not measured ${it.direction}; there are ${layouts.join(", ")}`);
    if (it.layout === ZERO_D && it.nbytes !== size)
      throw new UserError(`--layout ${ZERO_D}: one ${it.dtype}, ${size} bytes and not ${it.nbytes}`);
  }

  function nothing(it, onlyUnsafe) {
    if (onlyUnsafe) return "what does that has a hazard, every route: none is recommended";
    if (data.contracts.some((c) => c.direction === it.direction && c.refuses.includes(it.dtype)))
      return `--dtype ${it.dtype}: no route keeps it ${it.direction}, they raise`;
    const wanted = { [ALIAS]: " that shares memory", [COPY]: " that copies", [INTO]: " into a buffer" }[it.memory] ?? "";
    const grad = it.grad ? " and takes a tensor that requires grad" : "";
    const host = it.host ? ` of ${it.host} memory` : "";
    const what = it.batch ? `a batch of ${it.dtype}` : `${it.layout} ${it.dtype}${host}`;
    return `no route ${it.direction}${wanted}${grad} was measured for ${what}`;
  }

  /* --- pages/case.py: in words ------------------------------------------------------------------------------------- */

  function title(it) {
    const kind = `${it.layout === CONTIGUOUS ? "" : `${it.layout} `}${it.dtype}`;
    const each = show.size(it.nbytes);
    const source = it.batch ? `${it.batch} arrays of ${each} each of ${kind}` : `${each} of ${kind}`;
    const wants = { [ALIAS]: "shares its memory", [COPY]: "owns its memory", [INTO]: "is a buffer that exists" };
    const extra = it.memory ? [`the result ${wants[it.memory]}`] : [];
    if (it.grad) extra.push("the source requires grad");
    if (it.host) extra.push(`${it.host} host memory`);
    if (it.enqueue) extra.push("ranked by how long the caller is held");
    if (it.count > 1) extra.push(`${grouped(it.count)} times`);
    return [`From ${it.source} to ${it.target}, ${source}`, ...extra].join("; ");
  }

  function lineOf(candidate, it) {
    const { figure } = candidate;
    const said = [`${show.seconds(figure.seconds, candidate.calm)} (${show.interval(figure.low, figure.high)})`];
    if (candidate.rate) said.push(show.bandwidth(candidate.rate));
    if (candidate.share) said.push(`${show.percent(candidate.share)} of ${it.device ? "the link" : "memcpy"}`);
    said.push(data.memories[candidate.memory]);
    if (candidate.host === PINNED) said.push("pinned host memory");
    if (candidate.once)
      said.push(`and ${show.seconds(candidate.once.seconds)} once, ${show.seconds(candidate.total)} by the transfer`);
    if (it.count > 1) said.push(`${show.seconds(candidate.total * it.count)} for all`);
    return [show.code(candidate.route), ...said].join(", ") + (candidate.tie ? " (tie)" : "");
  }

  function notes(answer) {
    const { case: it, ranked } = answer;
    const [best, shown] = [ranked[0], ranked.slice(0, data.shown)];
    const sentences = [];
    const ties = ranked.filter((each) => each.tie).map((each) => each.route);
    if (ties.length) sentences.push(`A tie, not decided by what was measured beside it: ${show.codes(ties)}.`);
    const rests = shown.flatMap((candidate) => restsOn(candidate, it).map((text) => [text, candidate.route]));
    sentences.push(...saidOf(shown.length, rests));
    if (answer.arrays && answer.arrays !== it.batch)
      sentences.push(
        `Measured with ${answer.arrays} arrays of as many bytes together: what ${it.batch} cost may differ.`,
      );
    if (!shown.every((each) => each.calm))
      sentences.push("~ The machine was never calm there: it takes that long at most, and nothing is decided.");
    const promised = shown.flatMap((candidate) => promises(candidate).map((text) => [text, candidate.route]));
    sentences.push(...saidOf(0, promised));
    if (best.contract.quiet) sentences.push(`${show.code(best.route)}: ${best.contract.quiet}.`);
    for (const gain of best.gains) {
      const faster = `${show.ratio(gain.factor)} as fast at ${show.size(gain.nbytes)}`;
      const caution = gain.caution ? `; ${gain.caution}` : "";
      sentences.push(
        `Started with ${show.code(gain.setting)} before the command, ${show.code(gain.route)} is ${faster}${caution}.`,
      );
    }
    const slowed = slowedOf(it, best.route);
    if (slowed && best.memory !== ALIAS) {
      const longer = `${show.code(slowed.route)} takes ${show.ratio(slowed.factor)} as long at ${show.size(slowed.nbytes)}`;
      const where = "between arrays of whole pages, allocated one behind the other";
      sentences.push(
        `${show.code(best.route)} copies by C's memmove: ${where}, ${longer}, and torch's own copies do not.`,
      );
    }
    for (const candidate of answer.unsafe) {
      const why = candidate.contract.hazard || "it gets some inputs wrong without an exception";
      const seconds = show.seconds(candidate.figure.seconds);
      sentences.push(`${show.code(candidate.route)} is faster, ${seconds}, but not recommended: ${why}.`);
    }
    if (answer.unknown.length) sentences.push(`Not measured for ${it.layout} sources: ${show.codes(answer.unknown)}.`);
    return [...new Set(sentences)];
  }

  function saidOf(every, said) {
    const routes = new Map();
    for (const [text, route] of said) routes.set(text, [...(routes.get(text) ?? []), route]);
    return [...routes].map(([text, about]) => (about.length === every ? `${text}.` : `${show.codes(about)}: ${text}.`));
  }

  function restsOn(candidate, it) {
    const { figure } = candidate;
    const [sizes, at] = [show.sizes(figure.sizes), show.size(it.total)];
    const clauses = [];
    if (figure.how === BETWEEN && figure.broken) {
      const why = `from ${show.size(data.mapped)} on fresh memory is faulted in anew at every call`;
      clauses.push(`${at} was not measured; of ${sizes}, the one on its side: ${why}`);
    } else if (figure.how === BETWEEN) clauses.push(`${at} was not measured: interpolated between ${sizes}`);
    else if (figure.how === BEYOND) clauses.push(`${at} lies outside of what was measured: drawn on from ${sizes}`);
    if (candidate.once && candidate.once.how !== MEASURED)
      clauses.push(`what is paid once comes from ${show.sizes(candidate.once.sizes)}`);
    for (const { what, instead, at: there, factor, calm } of candidate.carried) {
      if (!there) clauses.push(`${what} was not measured: taken for ${instead}`);
      else if (!calm)
        clauses.push(
          `${what} takes ${show.ratio(factor)} the time of ${instead} at ${show.size(there)}, where the machine was never calm, and is taken to do so`,
        );
      else if (factor === 1)
        clauses.push(`${what} is taken for ${instead}, from which it is not decided to differ at ${show.size(there)}`);
      else
        clauses.push(
          `${what} takes ${show.ratio(factor)} the time of ${instead} at ${show.size(there)}, and is taken to do so here`,
        );
    }
    return clauses;
  }

  function promises(candidate) {
    const clauses = [candidate.contract.hazard, candidate.contract.caution].filter(Boolean);
    if (candidate.contract.needs)
      clauses.push(`needs ${show.join(candidate.contract.needs.split(/\s+/).filter(Boolean))}`);
    if (candidate.unpriced) clauses.push("what its pinned memory costs once was not measured, and is left out");
    return clauses;
  }

  /* --- pages/case.py: code to paste -------------------------------------------------------------------------------- */

  function snippet(it, best) {
    const { route, contract } = best;
    const made = ["import numpy as np", "import torch", ""];
    if (it.device) made.push(`device = torch.device("${data.kind}")`);
    made.push(source(it, best), ...buffers(it, best));
    const name = it.target === NUMPY ? "a" : "t";
    const given = best.memory !== INTO || (contract.array && it.target === NUMPY);
    const last = route.includes("; ") ? route.lastIndexOf("; ") + 2 : 0;
    const result = uses(route, name) ? `new_${name}` : name;
    made.push(given ? `${route.slice(0, last)}${result} = ${route.slice(last)}` : route);
    if (contract.non_blocking) {
      const before = it.target === CUDA ? "before the source changes" : "before the result is read";
      made.push(`torch.${data.kind}.synchronize()  # ${before}`);
    }
    return made.join("\n");
  }

  function source(it, best) {
    const count = Math.floor(it.nbytes / itemsize(it.dtype));
    const arrays = it.source === NUMPY;
    const library = arrays ? "np" : "torch";
    const dtype = dtypeOf(library, it);
    const { layout } = it;
    let rows = 1;
    while (rows < 1024 && count % (2 * rows) === 0) rows *= 2;
    let shape = { [ZERO_D]: "()", strided: `${2 * count}`, "5-d": `(${count}, 1, 1, 1, 1)` }[layout] ?? `${count}`;
    const after = { strided: "[::2]", transposed: ".T", fortran: ".T" }[layout] ?? "";
    if (after === ".T") shape = `(${Math.floor(count / rows)}, ${rows})`;
    const options = it.grad ? ", requires_grad=True" : "";
    if (it.source === CUDA) return `t = torch.ones(${shape}, dtype=${dtype}, device=device${options})${after}  # yours`;
    if (it.batch) {
      const name = arrays ? "arrays" : "tensors";
      return `${name} = [${library}.ones(${shape}, dtype=${dtype}) for _ in range(${it.batch})]  # yours`;
    }
    if (arrays && best.host === PINNED)
      return `a = torch.ones(${shape}, dtype=torch.${it.dtype}).pin_memory().numpy()${after}  # yours, pinned once`;
    const name = ["a", "m"].find((each) => uses(best.route, each)) ?? "t";
    const [pinned, paid] = best.host === PINNED ? [".pin_memory()", ", pinned once"] : ["", ""];
    return `${name} = ${library}.ones(${shape}, dtype=${dtype}${options})${pinned}${after}  # yours${paid}`;
  }

  const dtypeOf = (library, it) => (library === "np" && it.dtype === "bool" ? "np.bool_" : `${library}.${it.dtype}`);

  function buffers(it, best) {
    const { route } = best;
    const from = uses(route, "m") ? "m" : "t";
    const statements = [];
    if (uses(route, "dtype") && route.includes("dtype=dtype")) statements.push(`dtype = torch.${it.dtype}`);
    if (uses(route, "b")) {
      const [shape, library] = it.target === TORCH ? ["a.shape", "torch"] : ["tuple(t.shape)", "np"];
      const what = best.memory === INTO ? "the buffer" : "one of yours";
      statements.push(`b = ${library}.empty(${shape}, dtype=${dtypeOf(library, it)})  # ${what}`);
    }
    if (uses(route, "h")) {
      const pinned = best.host === PINNED ? ", pin_memory=True" : "";
      statements.push(`h = torch.empty(t.shape, dtype=t.dtype${pinned})  # the buffer`);
    }
    const like = uses(route, "a") ? `a.shape, dtype=torch.${it.dtype}` : `${from}.shape, dtype=${from}.dtype`;
    if (uses(route, "d")) statements.push(`d = torch.empty(${like}, device=device)  # the buffer`);
    if (uses(route, "s")) statements.push(`s = torch.empty(${like}, pin_memory=True)  # pinned once`);
    if (uses(route, "buffers"))
      statements.push(
        "from benchmarks import devices  # of this suite's checkout",
        "from benchmarks.moving import Buffers",
        "buffers = Buffers(devices.find().use(), torch.empty(t.shape, dtype=t.dtype))  # pinned once",
      );
    if (uses(route, "stages"))
      statements.push(
        "from benchmarks import devices  # of this suite's checkout",
        "from benchmarks.moving import Stages, copy_in_chunks",
        "stages = Stages(devices.find().use(), t.dtype)  # pinned once",
      );
    return statements;
  }

  /* --- scripts/advise.py ------------------------------------------------------------------------------------------- */

  function size(text) {
    const matched = text.match(/^\s*(-?\d+(?:\.\d+)?)\s*(|[kmg]i?)b?\s*$/i);
    const nbytes = matched ? Number(matched[1]) * UNITS[matched[2].toLowerCase()] : NaN;
    if (!Number.isInteger(nbytes)) throw new UserError(`--nbytes '${text}': write bytes such as 4096, 3MiB or 3MB`);
    return nbytes;
  }

  /* All that is shown of a case, as data: what advise.py --json says of it, or {wrong}. */
  function asJson(given) {
    try {
      const answer = rank(given);
      const { case: it } = answer;
      const plain = (candidate) => ({
        route: candidate.route, memory: candidate.memory, host: candidate.host, seconds: candidate.figure.seconds,
        low: candidate.figure.low, high: candidate.figure.high, total: candidate.total, tie: candidate.tie,
        line: lineOf(candidate, it), code: snippet(it, candidate),
      });
      return {
        case: it, title: title(it), ranked: answer.ranked.map(plain), unsafe: answer.unsafe.map(plain),
        notes: notes(answer), candidates: answer.ranked,
      };
    } catch (error) {
      if (error instanceof UserError) return { wrong: error.message };
      throw error;
    }
  }

  return { know, asJson, line, size, itemsize, mayRequireGrad, show, known: () => data };
})();
if (typeof module !== "undefined") module.exports = advise;
