'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const axes = [
    {key: 'step', title: 'Steps'},
    {key: 'seconds', title: 'Time'},
    {key: 'inter', title: 'Bytes between nodes'},
    {key: 'all', title: 'All bytes'},
  ];
  const has = (run, key) => Object.hasOwn(run.curves, key);  // keys come from files, and may be "constructor"
  const largest = (key) => {
    let top = 0;
    for (const run of data.runs)
      for (const curve of Object.values(run.curves)) top = Math.max(top, curve[key][curve[key].length - 1] || 0);
    return top;
  };
  const state = {axis: axes[0], logX: false, weight: 0, hidden: new Set()};
  const margin = {left: 58, right: 14, top: 8, bottom: 38};
  const height = 270;

  // Elements. Texts are set as text, never as markup.
  const svgNode = (name, attributes, text) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const htmlNode = (name, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  };
  const swatch = (run) => {
    const node = svgNode('svg', {class: `swatch ${run.style}`, viewBox: '0 0 26 8', 'aria-hidden': 'true'});
    node.append(svgNode('path', {d: 'M0 4H26'}));
    return node;
  };

  // Numbers.
  const short = (v) => {
    const a = Math.abs(v);
    if (a !== 0 && (a < 1e-3 || a >= 1e6)) return v.toExponential(2).replace(/\.?0+e/, 'e').replace('e+', 'e');
    return String(Number(v.toPrecision(5)));
  };
  const unitOf = (key, top) => {
    const pick = (units) => units.find((unit) => top >= unit[0]) || units[units.length - 1];
    if (key === 'seconds') return pick([[10800, 'h', 3600], [180, 'min', 60], [0, 's', 1]]).slice(1);
    if (key === 'step') return ['', 1];
    return pick([[1e12, 'TB', 1e12], [1e9, 'GB', 1e9], [1e6, 'MB', 1e6], [1e3, 'kB', 1e3], [0, 'B', 1]]).slice(1);
  };
  const xText = (key, v) => {
    const [unit, factor] = unitOf(key, v);
    return key === 'step' ? v.toLocaleString('en-US') : `${short(Number((v / factor).toPrecision(4)))} ${unit}`;
  };
  const ticks = (from, to, count, log) => {
    const list = [];
    if (log) {
      const low = Math.floor(Math.log10(from)), high = Math.ceil(Math.log10(to));
      const within = high - low <= 1 ? [1, 2, 3, 4, 5, 6, 7, 8] : high - low <= 3 ? [1, 2, 5] : [1];
      const every = Math.max(1, Math.ceil((high - low) / (2 * count)));
      for (let e = low; e <= high; e += every)
        for (const m of within)
          if (m * 10 ** e >= from * 0.999 && m * 10 ** e <= to * 1.001) list.push(Number(`${m}e${e}`));
      if (list.length > 1) return list;
      list.length = 0;
    }
    const rough = (to - from) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
    for (let k = Math.ceil(from / step - 1e-9); k * step <= to + step * 1e-9; ++k)
      list.push(Number((k * step).toPrecision(12)));
    return list;
  };
  const scale = (from, to, begin, end, log) => {
    const f = log ? Math.log : (v) => v, low = f(from), span = f(to) - low || 1;
    return (v) => begin + ((f(v) - low) / span) * (end - begin);
  };

  // Exponential moving average, without the bias of its first values. Values that are not finite are left out.
  const smoothed = (curve, weight) => {
    let sum = 0, norm = 0;
    return (curve.mean || curve.value).map((v) => {
      if (v === null) return null;
      sum = weight * sum + (1 - weight) * v;
      norm = weight * norm + (1 - weight);
      return sum / norm;
    });
  };
  const shownValues = (chart, curve) =>
      (chart.smooth && state.weight > 0 ? smoothed(curve, state.weight) : curve.value);
  const visible = (chart) => data.runs.filter((run) => has(run, chart.key) && !state.hidden.has(run)).map((run) => {
    const curve = run.curves[chart.key];
    return {run, curve, x: curve[state.axis.key], y: shownValues(chart, curve), raw: curve.value};
  });

  const path = (line, x, y, logX, logY) => {
    let d = '', pen = 'M';
    for (let i = 0; i < line.x.length; ++i) {
      const v = line.values[i];
      if (v === null || (logY && v <= 0) || (logX && line.x[i] <= 0)) {
        pen = 'M';
        continue;
      }
      d += `${pen}${x(line.x[i]).toFixed(1)} ${y(v).toFixed(1)}`;
      pen = 'L';
    }
    return d;
  };

  const range = (lists, log, slack) => {
    let low = Infinity, high = -Infinity;
    for (const list of lists)
      for (const v of list)
        if (v !== null && (!log || v > 0)) (low = Math.min(low, v)), (high = Math.max(high, v));
    if (low > high) return null;
    const even = high - low <= 1e-6 * Math.max(Math.abs(low), Math.abs(high));  // equal but for rounding
    if (even) return log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    if (log) return [low / (high / low) ** slack, high * (high / low) ** slack];
    return [low - slack * (high - low), high + slack * (high - low)];
  };

  const drawAxes = (view, width) => {
    const {svg, x, y, xRange, yRange, chart} = view, logY = chart.log.checked;
    const [unit, factor] = state.logX ? ['', 1] : unitOf(state.axis.key, xRange[1]);  // logarithmic: a unit per tick
    for (const v of ticks(yRange[0], yRange[1], 5, logY)) {
      svg.append(svgNode('line', {class: 'grid', x1: margin.left, x2: width - margin.right, y1: y(v), y2: y(v)}));
      const text = chart.percent ? `${short(Number((100 * v).toPrecision(4)))} %` : short(v);
      svg.append(svgNode('text', {x: margin.left - 7, y: y(v) + 4, 'text-anchor': 'end'}, text));
    }
    let free = -Infinity;
    for (const v of ticks(xRange[0] / factor, xRange[1] / factor, Math.max(2, Math.floor(width / 110)), state.logX)) {
      const at = x(v * factor), text = state.logX || state.axis.key === 'step' ? xText(state.axis.key, v) : short(v);
      if (at - 4 * text.length < free) continue;
      free = at + 4 * text.length + 6;
      svg.append(
          svgNode('line', {class: 'grid', x1: at, x2: at, y1: height - margin.bottom, y2: height - margin.bottom + 4}));
      svg.append(svgNode('text', {x: at, y: height - margin.bottom + 16, 'text-anchor': 'middle'}, text));
    }
    const title = state.axis.title + (unit ? ` (${unit})` : '');
    svg.append(
        svgNode('text', {x: (margin.left + width - margin.right) / 2, y: height - 4, 'text-anchor': 'middle'}, title));
  };

  const drawLine = (view, line) => {
    const {svg, x, y, chart} = view, logY = chart.log.checked;
    const group = svgNode('g', {class: line.run.style});
    if (line.y !== line.raw)
      group.append(
          svgNode('path', {class: 'curve raw', d: path({x: line.x, values: line.raw}, x, y, state.logX, logY)}));
    group.append(svgNode('path', {class: 'curve', d: path({x: line.x, values: line.y}, x, y, state.logX, logY)}));
    if (line.x.length <= 40)
      line.y.forEach((v, i) => {
        if (v !== null && !(logY && v <= 0) && !(state.logX && line.x[i] <= 0))
          group.append(svgNode('circle', {cx: x(line.x[i]), cy: y(v), r: 2.6}));
      });
    svg.append(group);
  };

  const draw = (chart) => {
    const width = chart.svg.clientWidth;
    if (!width) return;
    chart.svg.replaceChildren();
    chart.view = null;
    hide(chart);
    chart.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    const lines = visible(chart);
    const xRange = range(lines.map((line) => line.x), state.logX, 0);
    const yRange = range(lines.flatMap((line) => [line.y, line.raw]), chart.log.checked, 0.04);
    if (!xRange || !yRange) {
      const text = lines.length ? 'no values on these axes' : 'no run selected';
      chart.svg.append(svgNode('text', {x: width / 2, y: height / 2, 'text-anchor': 'middle'}, text));
      return;
    }
    if (!state.logX) xRange[0] = Math.min(0, xRange[0]);
    const x = scale(xRange[0], xRange[1], margin.left, width - margin.right, state.logX);
    const y = scale(yRange[0], yRange[1], height - margin.bottom, margin.top, chart.log.checked);
    chart.view = {svg: chart.svg, x, y, xRange, yRange, chart, lines, width};
    drawAxes(chart.view, width);
    for (const line of lines) drawLine(chart.view, line);
    chart.cross = svgNode('g', {});
    chart.svg.append(chart.cross);
  };

  // Values under the pointer: the nearest point of each run.
  const hide = (chart) => {
    chart.tip.hidden = true;
    if (chart.cross) chart.cross.replaceChildren();
  };
  const nearest = (line, x, at) => {
    let best = -1;
    for (let i = 0; i < line.x.length; ++i)
      if (line.y[i] !== null && (best < 0 || Math.abs(x(line.x[i]) - at) < Math.abs(x(line.x[best]) - at))) best = i;
    return best;
  };
  const valueText = (chart, v) => (chart.percent ? `${(100 * v).toFixed(2)} %` : short(v));
  const show = (chart, at) => {
    const view = chart.view;
    if (!view) return;
    chart.at = Math.min(Math.max(at, margin.left), view.width - margin.right);
    const rows = htmlNode('table');
    chart.cross.replaceChildren(
        svgNode('line', {class: 'cross', x1: chart.at, x2: chart.at, y1: margin.top, y2: height - margin.bottom}));
    for (const line of view.lines) {
      const i = nearest(line, view.x, chart.at);
      if (i < 0) continue;
      const px = view.x(line.x[i]), py = view.y(line.y[i]);
      if (Number.isFinite(px) && Number.isFinite(py)) {
        const dot = svgNode('g', {class: line.run.style});
        dot.append(svgNode('circle', {cx: px, cy: py, r: 3.6}));
        chart.cross.append(dot);
      }
      const raw = line.y === line.raw || line.raw[i] === null ? '' : ` (${valueText(chart, line.raw[i])})`;
      rows.append(htmlNode(
          'tr', {}, htmlNode('td', {}, swatch(line.run), line.run.name),
          htmlNode('th', {textContent: valueText(chart, line.y[i]) + raw}),
          htmlNode('td', {textContent: xText(state.axis.key, line.x[i])})));
    }
    const left = chart.at < view.width / 2;
    chart.tip.replaceChildren(rows);
    chart.tip.style.left = left ? `${chart.at + 14}px` : 'auto';
    chart.tip.style.right = left ? 'auto' : `${view.width - chart.at + 14}px`;
    chart.tip.hidden = false;
  };

  const addChart = (chart) => {
    chart.log = htmlNode('input', {type: 'checkbox'});
    chart.svg =
        svgNode('svg', {class: 'plot', role: 'img', tabindex: 0, 'aria-label': chart.title, 'data-key': chart.key});
    chart.tip = htmlNode('div', {className: 'tip', hidden: true});
    const values = data.runs.flatMap((run) => (has(run, chart.key) ? run.curves[chart.key].value : []));
    const caption = htmlNode('figcaption', {}, htmlNode('span', {textContent: chart.title}));
    if (!chart.percent && values.some((v) => v > 0)) caption.append(htmlNode('label', {}, chart.log, 'logarithmic'));
    const figure = htmlNode('figure', {className: 'chart'}, caption, chart.svg, chart.tip);
    document.getElementById(chart.main ? 'charts' : 'morecharts').append(figure);
    chart.log.addEventListener('change', () => draw(chart));
    chart.svg.addEventListener(
        'pointermove', (event) => show(chart, event.clientX - chart.svg.getBoundingClientRect().left));
    chart.svg.addEventListener('pointerleave', () => hide(chart));
    chart.svg.addEventListener('blur', () => hide(chart));
    chart.svg.addEventListener('keydown', (event) => {
      const step = {ArrowLeft: -6, ArrowRight: 6}[event.key];
      if (step) event.preventDefault(), show(chart, (chart.at || margin.left) + step);
    });
    new ResizeObserver(() => draw(chart)).observe(chart.svg);
  };

  const drawAll = () => data.charts.forEach(draw);
  const addControls = () => {
    for (const axis of axes) {
      if (axis.key !== 'step' && !largest(axis.key)) continue;
      const input = htmlNode('input', {type: 'radio', name: 'axis', value: axis.key, checked: axis === state.axis});
      input.addEventListener('change', () => ((state.axis = axis), drawAll()));
      document.getElementById('axis').append(htmlNode('label', {}, input, axis.title));
    }
    for (const run of data.runs) {
      const button = htmlNode('button', {type: 'button', title: 'shows or hides the run'}, swatch(run), run.name);
      button.setAttribute('aria-pressed', 'true');
      button.addEventListener('click', () => {
        if (!state.hidden.delete(run)) state.hidden.add(run);
        button.setAttribute('aria-pressed', String(!state.hidden.has(run)));
        drawAll();
      });
      document.getElementById('legend').append(button);
    }
    const slider = document.getElementById('smoothing');
    const smooth = () => {
      state.weight = Number(slider.value);
      document.getElementById('smoothed').textContent = state.weight.toFixed(2);
    };
    slider.addEventListener('input', () => (smooth(), drawAll()));
    smooth();
    const logX = document.getElementById('logx');
    logX.addEventListener('change', () => ((state.logX = logX.checked), drawAll()));
    document.querySelector('.controls').hidden = false;
  };

  addControls();
  data.charts.forEach(addChart);
  document.getElementById('more').hidden = data.charts.every((chart) => chart.main);
  drawAll();
})();
