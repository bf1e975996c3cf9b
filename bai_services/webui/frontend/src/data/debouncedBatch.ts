/**
 * Collect values without duplicates. Pass them to `run` when no value was added for `millis`
 * milliseconds.
 *
 * @returns a function that adds a value
 */
export function debouncedBatch<T>(
  run: (values: ReadonlySet<T>) => void,
  millis: number
): (value: T) => void {
  let values = new Set<T>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  return value => {
    values.add(value);
    clearTimeout(timer);
    timer = setTimeout(() => {
      const complete = values;
      values = new Set();
      run(complete);
    }, millis);
  };
}
