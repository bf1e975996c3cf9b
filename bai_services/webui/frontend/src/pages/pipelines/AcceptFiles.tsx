import { Alert, Checkbox, Flex } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';

interface AcceptFilesProps {
  folder?: string | null | undefined;
  isAccepted: boolean;
  onChange: (isAccepted: boolean) => void;
}

/** Question whether to run files that users with a lower role can change. */
export function AcceptFiles({ folder, isAccepted, onChange }: AcceptFilesProps) {
  const { t } = useTranslation();
  return (
    <Alert
      type="warning"
      showIcon
      style={{ marginBottom: 16 }}
      title={t('pipelines.accept-files-title')}
      description={
        <Flex vertical gap="small" align="start">
          {t('pipelines.accept-files-text')}
          {folder && (
            <Link to="/data" search={{ folder }} target="_blank">
              {t('pipelines.accept-files-folder')}
            </Link>
          )}
          <Checkbox checked={isAccepted} onChange={({ target }) => onChange(target.checked)}>
            {t('pipelines.accept-files')}
          </Checkbox>
        </Flex>
      }
    />
  );
}
