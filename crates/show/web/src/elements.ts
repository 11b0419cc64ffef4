// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by crates/show/present/tests/page_fixtures.rs from the elements; change those instead.

export type PageData = {
  elements: Element[];
  title: string;
  version: number;
};

export type Answer = {
  badges: Badge[];
  description: string;
  name: string;
  place: string;
  sentence: Text;
};

export type AnswerPart = {
  command: string;
  label: string;
  text: Text;
};

export type Axis = ([number, string])[];

export type Badge = {
  about: string;
  hint: string;
  link: string | null;
  outcome: Outcome;
  sign: string;
  word: string;
  word_seen: boolean;
};

export type Buckets = {
  buckets: ([number, number])[];
  max: number | null;
  min: number | null;
  samples: number;
};

export type Column = {
  axis: Axis | null;
  detail: boolean;
  kind: ColumnKind;
  name: Text;
};

export type ColumnKind = "text" | "name" | "figure" | "outcome";

export type Curve = {
  label: string;
  max: number | null;
  max_text: string;
  parts: number[];
  samples_text: string;
};

export type Drawing = {
  ends: [number, number];
  estimate: number;
  kind: "interval";
  label: string;
  no_effect: number;
  outcome: Outcome;
  tolerance: [number, number];
} | {
  kind: "shares";
  label: string;
  parts: Share[];
} | {
  event: number;
  kind: "life";
  label: string;
  outcome: Outcome;
  until: [number, number, number] | null;
} | {
  kind: "dots";
  label: string;
  median: number | null;
  shade: string;
  values: number[];
} | {
  curve: number;
  end: number;
  events: ([number, number, string])[];
  kind: "events";
  label: string;
  warm_up: number;
};

export type Element = {
  id: string;
  kind: "heading";
  level: number;
  name: string;
  text: Text;
} | {
  kind: "paragraph";
  remark: boolean;
  text: Text;
} | {
  kind: "alarm";
  severity: Severity;
  text: Text;
  title: string;
} | {
  answer: Text;
  kind: "first-answer";
  parts: AnswerPart[];
} | {
  answers: Answer[];
  kind: "answers";
} | {
  kind: "pairs";
  pairs: Pair[];
} | {
  items: ListItem[];
  kind: "list";
} | Table & {
  kind: "table";
} | {
  findings: FindingItem[];
  kind: "findings";
} | {
  badges: Badge[];
  folded: Badge[];
  kind: "badges";
  summary: string;
} | Matrix & {
  kind: "matrix";
} | LatencyChart & {
  kind: "latency";
} | {
  elements: Element[];
  kind: "detail";
  summary: string | null;
} | {
  columns: Element[][];
  framed: boolean;
  kind: "columns";
} | {
  condition: string | null;
  elements: Element[];
  kind: "switched";
  leading: boolean;
  views: string[];
};

export type Entry = {
  detail: Element[];
  drawing: Drawing | null;
  outcome: Outcome | null;
  sign: string | null;
  text: Text;
};

export type Facet = {
  curves: Curve[];
  name: string;
};

export type FindingItem = {
  fixes: Text[];
  location: string;
  severity: Severity;
  values: string;
  what: Text;
  word: string;
};

export type Grouping = {
  by_condition: boolean;
  facet: string;
  facets: Facet[];
  name: string;
};

export type LatencyChart = {
  distributions: Buckets[];
  views: LatencyView[];
};

export type LatencyView = {
  corrected: boolean;
  deadline: number | null;
  deadline_label: string;
  groupings: Grouping[];
  key: string;
  note: string;
  quantity: string;
  series: string;
};

export type ListItem = {
  items: ListItem[];
  label: string;
  text: Text;
};

export type Matrix = {
  columns: Text[];
  corner: string;
  groups: MatrixGroup[];
  selected: [number, number] | null;
  traces: Trace[];
};

export type MatrixEntry = {
  domain: string;
  drawing: Drawing | null;
  ends: string;
  figure: string;
  hint: string;
  id: string | null;
  outcome: Outcome | null;
  pair: PairDetail | null;
  sign: string;
  word: string;
};

export type MatrixGroup = {
  about: string;
  name: string;
  remark: Text;
  rows: MatrixRow[];
  title: Text;
};

export type MatrixRow = {
  about: Text[];
  entries: MatrixEntry[];
  name: string;
};

export type Outcome = "holds" | "leaks" | "fails" | "inconclusive" | "own";

export type Pair = {
  more: string | null;
  name: string;
  value: Text[];
};

export type PairDetail = {
  rounds: PairRound[];
  statement: Text;
  title: Text;
};

export type PairRound = {
  elements: Element[];
  everyone: TraceLine[];
  id: string;
  legend: ([string, string])[];
  pair: TraceLine[];
  pair_name: string;
};

export type Row = {
  detail: Element[];
  entries: Entry[];
  hint: string;
  id: string | null;
  invalid: boolean;
};

export type RowGroup = {
  about: Text;
  condition: string | null;
  detail: boolean;
  name: string;
  rows: Row[];
};

export type Severity = "note" | "warning" | "error";

export type Share = {
  class: string;
  from: number;
  hint: string;
  width: number;
};

export type Span = {
  style?: SpanStyle;
  text: string;
};

export type SpanStyle = "plain" | "strong" | "code" | "faint" | "wrong";

export type Table = {
  caption: string;
  class: string;
  columns: Column[];
  groups: RowGroup[];
  style: TableStyle;
};

export type TableStyle = "figures" | "lines" | "drawings";

export type Text = Span[];

export type Trace = {
  blocks: TraceBlock[];
  curve: number;
  slot: number;
  uncertainty: number;
  windows: TraceWindow[];
  worst: (number | null)[];
};

export type TraceBlock = {
  cpu: number;
  from: number;
  sequence: number;
  to: number;
};

export type TraceLine = {
  title: string;
  trace: number;
};

export type TraceWindow = {
  block: number | null;
  from: number;
  to: number;
  worst: number | null;
};
