interface Period {
  starts_at: string;
  ends_at: string;
}

/**
 * Return the track of each period, such that periods in one track do not overlap, and the number of
 * tracks. Reservations of parts of one machine can overlap.
 */
export function tracksOf<P extends Period>(periods: readonly P[]): [Map<P, number>, number] {
  const ends: number[] = [];
  const tracks = new Map<P, number>();
  const byStart = [...periods].sort((a, b) => Date.parse(a.starts_at) - Date.parse(b.starts_at));
  for (const period of byStart) {
    const free = ends.findIndex(end => end <= Date.parse(period.starts_at));
    const track = free < 0 ? ends.length : free;
    ends[track] = Date.parse(period.ends_at);
    tracks.set(period, track);
  }
  return [tracks, ends.length];
}
