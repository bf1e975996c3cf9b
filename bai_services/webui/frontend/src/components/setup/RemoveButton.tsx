import { Button, Popconfirm } from 'antd';
import { useTranslation } from 'react-i18next';

/** Button that removes a variable, dotfile or script after a confirmation. */
export function RemoveButton({ name, onRemove }: { name: string; onRemove: () => void }) {
  const { t } = useTranslation();
  return (
    <Popconfirm title={t('setup.remove-one', { name })} onConfirm={onRemove}>
      <Button size="small" danger aria-label={t('setup.remove-one', { name })}>
        {t('setup.remove')}
      </Button>
    </Popconfirm>
  );
}
