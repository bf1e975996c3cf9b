import { Flex, Progress } from 'antd';

const FULL_PERCENT = 90;

interface UsageBarProps {
  name: string;
  text: string;
  /** Used percentage; null: show only the text. */
  percent: number | null;
  /** Whether the bar shows the free part instead of the used part. */
  isFree?: boolean;
  /** Whether the bar is divided into segments. */
  hasSegments?: boolean;
}

/** A used or free amount as text and, if `percent` is not null, as a bar. */
export function UsageBar({ name, text, percent, isFree = false, hasSegments }: UsageBarProps) {
  const isFull = percent !== null && percent >= FULL_PERCENT;
  return (
    <div style={{ marginBottom: 4 }}>
      <Flex wrap justify="space-between" gap="small">
        <span>{name}</span>
        <span>{text}</span>
      </Flex>
      {percent !== null && (
        <Progress
          percent={isFree ? 100 - percent : percent}
          size="small"
          showInfo={false}
          status={isFull ? 'exception' : 'normal'}
          aria-label={`${name}: ${text}`}
          className={hasSegments ? 'bai-segments' : ''}
        />
      )}
    </div>
  );
}
