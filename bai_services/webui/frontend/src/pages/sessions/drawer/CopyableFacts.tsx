import { Descriptions, Typography } from 'antd';
import { useTranslation } from 'react-i18next';

interface CopyableFactsProps {
  /** Prefix of the translation keys: the label of a fact is the text `AREA.KEY`. */
  area: string;
  facts: Record<string, string>;
}

/** Commands, hosts and the like, each with a button to copy it. */
export function CopyableFacts({ area, facts }: CopyableFactsProps) {
  const { t } = useTranslation();
  return (
    <Descriptions
      size="small"
      column={1}
      items={Object.entries(facts).map(([key, text]) => ({
        key,
        label: t(`${area}.${key}`),
        children: (
          <Typography.Text code copyable={{ text }}>
            {text}
          </Typography.Text>
        )
      }))}
    />
  );
}
