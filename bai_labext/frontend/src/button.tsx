import * as React from 'react';

export function Button(props: {
  label: string;
  /**
   * The object of the action: distinguishes buttons with equal labels for
   * screen readers.
   */
  of?: string;
  onClick: () => void;
  isDanger?: boolean;
}): React.ReactElement {
  const { label, of, onClick, isDanger = false } = props;
  return (
    <button
      type="button"
      className={`bai-Button${isDanger ? ' bai-mod-danger' : ''}`}
      aria-label={of ? `${label}: ${of}` : label}
      onClick={onClick}
    >
      {label}
    </button>
  );
}
