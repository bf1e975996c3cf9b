import { useEffect, useMemo, useRef } from 'react';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useTranslation } from 'react-i18next';
import { spansOf } from '../../../components/ansi';

const LINE_PIXELS = 18;
const END_PIXELS = 4;

export interface LogLine {
  number: number;
  text: string;
}

interface LogLinesProps {
  lines: LogLine[];
  /** Whether to keep the last line in view. */
  isFollowed: boolean;
  onFollow: (isFollowed: boolean) => void;
}

/** Lines of terminal output in their colors; only lines in or near the viewport are rendered. */
export function LogLines({ lines, isFollowed, onFollow }: LogLinesProps) {
  const { t } = useTranslation();
  const viewport = useRef<HTMLDivElement>(null);
  const spans = useMemo(() => spansOf(lines.map(({ text }) => text)), [lines]);
  // No memoized value or component uses the virtualizer, so its results are never stale here.
  // eslint-disable-next-line react-hooks/incompatible-library
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => viewport.current,
    estimateSize: () => LINE_PIXELS,
    overscan: 20
  });
  useEffect(() => {
    if (isFollowed && lines.length > 0) {
      rows.scrollToIndex(lines.length - 1, { align: 'end' });
    }
  }, [isFollowed, lines, rows]);
  const stopAtScroll = () => {
    const element = viewport.current;
    if (element && isFollowed) {
      const below = element.scrollHeight - element.scrollTop - element.clientHeight;
      if (below > END_PIXELS) {
        onFollow(false);
      }
    }
  };
  return (
    <div
      ref={viewport}
      className="bai-log"
      role="log"
      aria-label={t('sessions.logs')}
      // Screen readers do not announce new lines: a log can have hundreds per second.
      aria-live="off"
      tabIndex={0}
      onWheel={stopAtScroll}
      onTouchMove={stopAtScroll}
      onKeyUp={stopAtScroll}
    >
      <div style={{ height: rows.getTotalSize(), position: 'relative' }}>
        {rows.getVirtualItems().map(({ index, start }) => (
          <div
            key={index}
            ref={rows.measureElement}
            data-index={index}
            className="bai-log-line"
            style={{ transform: `translateY(${start}px)` }}
          >
            <span className="bai-log-number" aria-hidden>
              {lines[index]?.number}
            </span>
            <span>
              {spans[index]?.map((span, position) => (
                <span key={position} className={span.style || undefined}>
                  {span.text}
                </span>
              ))}
            </span>
          </div>
        ))}
      </div>
    </div>
  );
}
