/** A session with the ids of its dependencies. */
export interface GraphItem {
  id: string;
  depends_on: string[];
}

export interface Placed<T> {
  item: T;
  /** Column of a session: greater than the columns of all its dependencies. */
  column: number;
  row: number;
}

/** Return the column and row of each session; the API's graph has no cycles. */
export function layOut<T extends GraphItem>(items: T[]): Placed<T>[] {
  const byId = new Map(items.map(item => [item.id, item]));
  const columns = new Map<string, number>();
  const columnOf = (id: string): number => {
    const known = columns.get(id);
    if (known !== undefined) {
      return known;
    }
    const before = (byId.get(id)?.depends_on ?? []).filter(other => byId.has(other));
    const column = Math.max(-1, ...before.map(columnOf)) + 1;
    columns.set(id, column);
    return column;
  };
  const heights = new Map<number, number>();
  return items.map(item => {
    const column = columnOf(item.id);
    const row = heights.get(column) ?? 0;
    heights.set(column, row + 1);
    return { item, column, row };
  });
}
