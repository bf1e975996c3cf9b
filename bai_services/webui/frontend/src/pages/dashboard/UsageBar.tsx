import { Flex, Progress } from 'antd';

const FULL_PERCENT = 90;

interface UsageBarProps {
  name: string;
  text: string;
  /** Percentage of the bar; null: show only the text. */
  percent: number | null;
}

/** An amount in use with its bar; the percentage is computed by the server. */
export function UsageBar({ name, text, percent }: UsageBarProps) {
  return (
    <div style={{ marginBottom: 4 }}>
      <Flex wrap justify="space-between" gap="small">
        <span>{name}</span>
        <span>{text}</span>
      </Flex>
      {percent !== null && (
        <Progress
          percent={percent}
          size="small"
          showInfo={false}
          status={percent >= FULL_PERCENT ? 'exception' : 'normal'}
          aria-label={`${name}: ${text}`}
        />
      )}
    </div>
  );
}
