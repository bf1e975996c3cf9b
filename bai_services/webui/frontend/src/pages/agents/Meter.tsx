import { Progress } from 'antd';

interface MeterProps {
  label: string;
  percent: number;
  /** Shown instead of the percentage. */
  text?: string;
}

/** A named bar with its value. */
export function Meter({ label, percent, text }: MeterProps) {
  return (
    <div className="bai-meter">
      <small className="bai-nowrap">
        {label} {text ?? `${percent} %`}
      </small>
      <Progress
        size="small"
        // At 100 %, the default status would show the bar as a success.
        status="normal"
        showInfo={false}
        percent={percent}
        aria-label={label}
      />
    </div>
  );
}
